// Causal attention on the CPU by tiles of 64 queries by 64 keys that stay in the cache. Bits do not
// depend on the number of threads: every sum belongs to one task and runs in the order of the
// tokens. Heads of any size: rows are copied to scratch padded with zeros to whole vectors.
#include "llmc/ops/attention.h"

#include <omp.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdint>

#include "llmc/ops/tile_product.h"
#include "llmc/ops/vector_math.h"

constexpr int kTile = 64;

static int tile_count(int T) {
    return (T + kTile - 1) / kTile;
}

// What both directions need to find their way in the packed rows.
struct Heads {
    int T, H, KV, HS;
    int64_t stride() const { return int64_t(H + 2 * KV) * HS; }
    int64_t query(int64_t b, int64_t h) const { return b * T * stride() + h * HS; }
    int64_t key(int64_t b, int64_t kv) const { return b * T * stride() + (H + kv) * HS; }
    int64_t value(int64_t b, int64_t kv) const { return key(b, kv) + int64_t(KV) * HS; }
    int64_t output(int64_t b, int64_t h) const { return (b * T * H + h) * HS; }
    int64_t output_stride() const { return int64_t(H) * HS; }
    int padded() const { return round_to_lanes(HS); }
    float scale() const { return 1.f / std::sqrt(float(HS)); }
    int rows_in_tile(int tile) const { return std::min(kTile, T - tile * kTile); }
};

// to (rows, width) = from, padded with zeros.
static void copy_rows(float* to, int width, const float* from, int64_t stride, int rows, int HS) {
    for (int t = 0; t < rows; t++) {
        std::copy_n(from + t * stride, HS, to + int64_t(t) * width);
        std::fill(to + int64_t(t) * width + HS, to + int64_t(t + 1) * width, 0.f);
    }
}
// to (HS, kTile) = from^T, padded with zeros.
static void copy_transposed(float* to, const float* from, int64_t stride, int rows, int HS) {
    for (int t0 = 0; t0 < kTile; t0 += kLanes) {
        for (int i0 = 0; i0 < HS; i0 += kLanes) {
            const int columns = std::min(kLanes, HS - i0);
            Vec square[kLanes] = {};
            for (int t = t0; t < std::min(rows, t0 + kLanes); t++)
                square[t - t0] = vec_load_first(from + t * stride + i0, columns);
            vec_transpose(square);
            for (int i = 0; i < columns; i++) vec_store(to + (i0 + i) * kTile + t0, square[i]);
        }
    }
}
static void copy_rows_back(float* to, int64_t stride, const float* from, int width, int rows,
                           int HS) {
    for (int t = 0; t < rows; t++) std::copy_n(from + int64_t(t) * width, HS, to + t * stride);
}

// ---- forward
// Workspace: keys transposed and values of all heads, by tiles; then scratch for each thread.
static int64_t packed_floats(const Heads& a) {
    return int64_t(tile_count(a.T)) * kTile * (a.HS + a.padded());
}
static int64_t forward_slot_floats(const Heads& a) {
    return kTile * int64_t(kTile + a.padded());
}

size_t attention_forward_workspace_bytes(int B, int T, int H, int KV, int HS, CpuStream) {
    const Heads a{T, H, KV, HS};
    const int64_t slots = std::min<int64_t>(omp_get_max_threads(), int64_t(B) * H * tile_count(T));
    return (int64_t(B) * KV * packed_floats(a) + slots * forward_slot_floats(a)) * sizeof(float);
}

// The running softmax of one row over one more tile of scores: they become exp(s - max); the new
// maximum, and the factor by which what was summed before shrinks. Only the first `count` scores
// count.
struct Running {
    float max = -INFINITY, sum = 0.f;
};
static float softmax_row(Running& row, float* s, int count, float scale) {
    for (int u = count; u < kTile; u++) s[u] = -INFINITY;
    Vec x[kTile / kLanes], most = vec_all(row.max), sum{};
    for (int i = 0; i < kTile / kLanes; i++) {
        x[i] = vec_load(s + i * kLanes) * scale;
        most = vec_max(x[i], most);
    }
    const float max = vec_max_lanes(most);
    for (int i = 0; i < kTile / kLanes; i++) {
        x[i] = vec_exp(x[i] - max);
        vec_store(s + i * kLanes, x[i]);
        sum += x[i];
    }
    const float shrink = vec_exp(row.max - max);
    row.sum = row.sum * shrink + vec_sum_lanes(sum);
    row.max = max;
    return shrink;
}

// One tile of queries of one head against all its keys.
static void forward_tile(float* out, float* lse, const float* q, const float* packed, int tile,
                         const Heads& a, float* slot) {
    const int width = a.padded(), rows = a.rows_in_tile(tile);
    float *const scores = slot, *const sum =
                                    slot + kTile * kTile;  // (kTile, kTile), (kTile, width)
    Running running[kTile];
    for (int j = 0; j <= tile; j++) {
        const float* keys = packed + int64_t(j) * kTile * (a.HS + width);  // (HS, kTile)
        const float* values = keys + kTile * int64_t(a.HS);                // (kTile, width)
        tile_product(rows, kTile, a.HS, {q, a.stride(), 1}, keys, kTile, scores, kTile, false);
        for (int t = 0; t < rows; t++) {
            const float shrink =
                softmax_row(running[t], scores + t * kTile, j == tile ? t + 1 : kTile, a.scale());
            if (j > 0 && shrink != 1.f)
                for (int i = 0; i < width; i++) sum[t * width + i] *= shrink;
        }
        tile_product(rows, width, a.rows_in_tile(j), {scores, kTile, 1}, values, width, sum, width,
                     j > 0);
    }
    for (int t = 0; t < rows; t++) {
        const float inverse = 1.f / running[t].sum;
        for (int i = 0; i < a.HS; i++)
            out[t * a.output_stride() + i] = sum[t * width + i] * inverse;
        lse[t] = running[t].max + std::log(running[t].sum);
    }
}

void attention_forward(float* out, float* lse, const float* qkv, int B, int T, int H, int KV,
                       int HS, Workspace ws, CpuStream) {
    const Heads a{T, H, KV, HS};
    const int tiles = tile_count(T), width = a.padded();
    const int64_t slots =
        (int64_t(ws.bytes / sizeof(float)) - B * KV * packed_floats(a)) / forward_slot_floats(a);
    assert(slots > 0);
    float* const packed = static_cast<float*>(ws.data);
    float* const scratch = packed + int64_t(B) * KV * packed_floats(a);
#pragma omp parallel num_threads(int(std::min <int64_t>(slots, omp_get_max_threads())))
    {
        // Keys and values of every head, tile by tile.
#pragma omp for schedule(static)
        for (int64_t n = 0; n < int64_t(B) * KV * tiles; n++) {
            const int64_t b = n / tiles / KV, kv = n / tiles % KV, tile = n % tiles;
            const int64_t first = tile * kTile * a.stride();
            const int rows = a.rows_in_tile(int(tile));
            float* const to = packed + n * kTile * (HS + width);
            copy_transposed(to, qkv + a.key(b, kv) + first, a.stride(), rows, HS);
            copy_rows(to + kTile * HS, width, qkv + a.value(b, kv) + first, a.stride(), rows, HS);
        }
        // Tiles of queries; the last one of a head has the most keys and goes first.
#pragma omp for schedule(dynamic)
        for (int64_t n = 0; n < int64_t(B) * H * tiles; n++) {
            const int64_t b = n / tiles / H, h = n / tiles % H, tile = tiles - 1 - n % tiles;
            const int64_t t0 = tile * kTile, kv = h / (H / KV);
            forward_tile(out + a.output(b, h) + t0 * a.output_stride(), lse + (b * H + h) * T + t0,
                         qkv + a.query(b, h) + t0 * a.stride(),
                         packed + (b * KV + kv) * packed_floats(a), int(tile), a,
                         scratch + omp_get_thread_num() * forward_slot_floats(a));
        }
    }
}

// ---- backward
// One task is one key/value head with its query heads. Scratch of a thread, all by whole tiles:
// q, dout, dq of one query head and dk, dv, (T, padded) each, and tiles of keys, values, S and dP.
struct BackwardSlot {
    float *q, *dout, *dq, *dk, *dv, *D, *k, *k_transposed, *v_transposed, *p, *ds;
    static int64_t rows(const Heads& a) { return int64_t(tile_count(a.T)) * kTile; }
    static int64_t floats(const Heads& a) {
        return rows(a) * (5 * a.padded() + 1) + kTile * int64_t(a.padded() + 2 * a.HS + 2 * kTile);
    }
    BackwardSlot(float* at, const Heads& a) {
        const auto take = [&](int64_t n) { return std::exchange(at, at + n); };
        for (float** x : {&q, &dout, &dq, &dk, &dv}) *x = take(rows(a) * a.padded());
        D = take(rows(a));
        k = take(kTile * int64_t(a.padded()));
        for (float** x : {&k_transposed, &v_transposed}) *x = take(kTile * int64_t(a.HS));
        for (float** x : {&p, &ds}) *x = take(kTile * kTile);
    }
};

size_t attention_backward_workspace_bytes(int B, int T, int H, int KV, int HS, CpuStream) {
    const int64_t slots = std::min<int64_t>(omp_get_max_threads(), int64_t(B) * KV);
    return slots * BackwardSlot::floats({T, H, KV, HS}) * sizeof(float);
}

// Scores and dP of one tile become P = exp(S - lse) and dS = P * (dP - D) * scale.
static void backward_scores(const BackwardSlot& s, const float* lse, const float* D, int rows,
                            bool diagonal, float scale) {
    for (int t = 0; t < rows; t++) {
        float *const p = s.p + t * kTile, *const ds = s.ds + t * kTile;
        const float l = lse[t], d = D[t];
        for (int u = 0; u < kTile; u += kLanes) {
            const Vec e = vec_exp(vec_load(p + u) * scale - l);
            vec_store(p + u, e);
            vec_store(ds + u, e * (vec_load(ds + u) - d) * scale);
        }
        if (diagonal) {
            std::fill(p + t + 1, p + kTile, 0.f);
            std::fill(ds + t + 1, ds + kTile, 0.f);
        }
    }
}

// Adds one query head's part to s.dk and s.dv and leaves its dq in s.dq.
static void backward_head(const BackwardSlot& s, const float* k, const float* v, const float* lse,
                          const Heads& a) {
    const int width = a.padded(), tiles = tile_count(a.T);
    for (int j = 0; j < tiles; j++) {
        const int64_t first = int64_t(j) * kTile;
        const int keys = a.rows_in_tile(j);
        copy_rows(s.k, width, k + first * a.stride(), a.stride(), keys, a.HS);
        copy_transposed(s.k_transposed, k + first * a.stride(), a.stride(), keys, a.HS);
        copy_transposed(s.v_transposed, v + first * a.stride(), a.stride(), keys, a.HS);
        float *const dk = s.dk + first * width, *const dv = s.dv + first * width;
        for (int i = j; i < tiles; i++) {
            const int64_t t0 = int64_t(i) * kTile;
            const int rows = a.rows_in_tile(i);
            const float *const q = s.q + t0 * width, *const dout = s.dout + t0 * width;
            tile_product(rows, kTile, a.HS, {q, width, 1}, s.k_transposed, kTile, s.p, kTile,
                         false);
            tile_product(rows, kTile, a.HS, {dout, width, 1}, s.v_transposed, kTile, s.ds, kTile,
                         false);
            backward_scores(s, lse + t0, s.D + t0, rows, i == j, a.scale());
            tile_product(keys, width, rows, {s.p, 1, kTile}, dout, width, dv, width, true);
            tile_product(keys, width, rows, {s.ds, 1, kTile}, q, width, dk, width, true);
            tile_product(rows, width, keys, {s.ds, kTile, 1}, s.k, width, s.dq + t0 * width, width,
                         j > 0);
        }
    }
}

void attention_backward(float* dqkv, const float* dout, const float* qkv, const float* out,
                        const float* lse, int B, int T, int H, int KV, int HS, Workspace ws,
                        CpuStream) {
    const Heads a{T, H, KV, HS};
    const int64_t group = H / KV, width = a.padded();
    const int64_t slots = int64_t(ws.bytes / sizeof(float)) / BackwardSlot::floats(a);
    assert(slots > 0);
#pragma omp parallel for schedule(dynamic) \
    num_threads(int(std::min <int64_t>(slots, omp_get_max_threads())))
    for (int64_t task = 0; task < int64_t(B) * KV; task++) {
        const int64_t b = task / KV, kv = task % KV;
        const BackwardSlot s(
            static_cast<float*>(ws.data) + omp_get_thread_num() * BackwardSlot::floats(a), a);
        std::fill_n(s.dk, T * width, 0.f);
        std::fill_n(s.dv, T * width, 0.f);
        for (int64_t h = kv * group; h < (kv + 1) * group; h++) {
            const float* head_out = out + a.output(b, h);
            const float* head_dout = dout + a.output(b, h);
            copy_rows(s.q, int(width), qkv + a.query(b, h), a.stride(), T, HS);
            copy_rows(s.dout, int(width), head_dout, a.output_stride(), T, HS);
            for (int t = 0; t < T; t++) {
                float sum = 0.f;
#pragma omp simd reduction(+ : sum)
                for (int i = 0; i < HS; i++)
                    sum +=
                        head_dout[t * a.output_stride() + i] * head_out[t * a.output_stride() + i];
                s.D[t] = sum;
            }
            backward_head(s, qkv + a.key(b, kv), qkv + a.value(b, kv), lse + (b * H + h) * T, a);
            copy_rows_back(dqkv + a.query(b, h), a.stride(), s.dq, int(width), T, HS);
        }
        copy_rows_back(dqkv + a.key(b, kv), a.stride(), s.dk, int(width), T, HS);
        copy_rows_back(dqkv + a.value(b, kv), a.stride(), s.dv, int(width), T, HS);
    }
}

// ---- one token
void attention_decode(float* out, const float* q, const float* kcache, const float* vcache, int t,
                      int H, int KV, int HS, CpuStream) {
    const float scale = 1.f / std::sqrt(float(HS));
#pragma omp parallel for schedule(static)
    for (int h = 0; h < H; h++) {
        const int64_t kv = h / (H / KV), stride = int64_t(KV) * HS;
        float* o = out + int64_t(h) * HS;
        std::fill_n(o, HS, 0.f);
        Running running;
        for (int u0 = 0; u0 <= t; u0 += kTile) {
            float s[kTile];
            const int count = std::min(kTile, t + 1 - u0);
            for (int u = 0; u < count; u++) {
                const float* k = kcache + (u0 + u) * stride + kv * HS;
                float sum = 0.f;
#pragma omp simd reduction(+ : sum)
                for (int i = 0; i < HS; i++) sum += q[int64_t(h) * HS + i] * k[i];
                s[u] = sum;
            }
            const float shrink = softmax_row(running, s, count, scale);
            for (int i = 0; i < HS; i++) o[i] *= shrink;
            for (int u = 0; u < count; u++) {
                const float* v = vcache + (u0 + u) * stride + kv * HS;
                for (int i = 0; i < HS; i++) o[i] += s[u] * v[i];
            }
        }
        for (int i = 0; i < HS; i++) o[i] /= running.sum;
    }
}
