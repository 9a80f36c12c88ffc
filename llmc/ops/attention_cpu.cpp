// Causal attention on the CPU by tiles of 64 queries by 64 keys that stay in the cache. Bits do not
// depend on the number of threads: every sum belongs to one task and runs in the order of the
// tokens. Heads of any size: rows are copied to scratch padded with zeros to whole vectors.
#include "llmc/ops/attention.h"

#include <omp.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdint>

#include "llmc/core/phase.h"
#include "llmc/core/round.h"
#include "llmc/ops/tile_product.h"
#include "llmc/ops/vector_math.h"

constexpr int kTile = 64;
constexpr int kStripe = 16;  // rows of a tile on the diagonal that are worked on together

static int tile_count(int T) {
    return ceil_div(T, kTile);
}

// Keys of a tile that the stripe from row t0 on may see: all of them, or on the diagonal those up
// to the stripe's last row.
static int visible_keys(int t0, int keys, bool diagonal) {
    return diagonal ? std::min(keys, t0 + kStripe) : keys;
}
// visit(t0, count): the rows of a tile, all at once, or on the diagonal by stripes.
template <class Visit>
static void visit_stripes(int rows, bool diagonal, Visit visit) {
    const int step = diagonal ? kStripe : kTile;
    for (int t0 = 0; t0 < rows; t0 += step) visit(t0, std::min(step, rows - t0));
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

static float dot(const float* a, const float* b, int n) {
    Vec sum{};
    int i = 0;
    for (; i + kLanes <= n; i += kLanes) sum = vec_fma(vec_load(a + i), vec_load(b + i), sum);
    if (i < n) sum = vec_fma(vec_load_first(a + i, n - i), vec_load_first(b + i, n - i), sum);
    return vec_sum_lanes(sum);
}

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
            for (int t = t0; t < std::min(rows, t0 + kLanes); t++) {
                const float* const row = from + t * stride + i0;
                square[t - t0] = columns == kLanes ? vec_load(row) : vec_load_first(row, columns);
            }
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

// The softmax of some rows as more and more scores come in: the largest so far, the sum of exp(s -
// max), and by how much the last tile made what was summed before shrink.
struct Running {
    float max[kTile], sum[kTile], shrink[kTile];
    Running() {
        std::fill_n(max, kTile, -INFINITY);
        std::fill_n(sum, kTile, 0.f);
    }
};

// Scores (rows, kTile) become exp(scale * s - max). Only `keys` of a row count, or on the diagonal
// the first t + 1; behind them the row is 0 as far as its stripe can see.
static void softmax_tile(Running& r, float* scores, int rows, int keys, bool diagonal,
                         float scale) {
    float before[kTile];
    for (int t = 0; t < rows; t++) {
        float* const s = scores + t * kTile;
        const int count = diagonal ? t + 1 : keys;
        const int width = round_to_lanes(visible_keys(t / kStripe * kStripe, keys, diagonal));
        std::fill(s + count, s + width, -INFINITY);
        Vec most = vec_load(s);
        for (int u = kLanes; u < width; u += kLanes) most = vec_max(vec_load(s + u), most);
        before[t] = r.max[t];
        r.max[t] = std::max(r.max[t], scale * vec_max_lanes(most));
    }
    vec_map(
        rows, r.shrink, [](Vec a, Vec b) { return vec_exp(a - b); }, before, r.max);
    for (int t = 0; t < rows; t++) {
        float* const s = scores + t * kTile;
        const int width = round_to_lanes(visible_keys(t / kStripe * kStripe, keys, diagonal));
        const Vec factor = vec_all(scale), shift = vec_all(-r.max[t]);
        Vec sum{};
        for (int u = 0; u < width; u += kLanes) {
            const Vec e = vec_exp(vec_fma(vec_load(s + u), factor, shift));
            vec_store(s + u, e);
            sum += e;
        }
        r.sum[t] = r.sum[t] * r.shrink[t] + vec_sum_lanes(sum);
    }
}

// One tile of queries of one head against all its keys.
static void forward_tile(float* out, float* lse, const float* q, const float* packed, int tile,
                         const Heads& a, float* slot) {
    const int width = a.padded(), rows = a.rows_in_tile(tile);
    float *const scores = slot, *const sum =
                                    slot + kTile * kTile;  // (kTile, kTile), (kTile, width)
    Running r;
    for (int j = 0; j <= tile; j++) {
        const float* keys_of_j = packed + int64_t(j) * kTile * (a.HS + width);  // (HS, kTile)
        const float* values = keys_of_j + kTile * int64_t(a.HS);                // (kTile, width)
        const int keys = a.rows_in_tile(j);
        const bool diagonal = j == tile;
        visit_stripes(rows, diagonal, [&](int t0, int count) {
            tile_product(count, round_to_lanes(visible_keys(t0, keys, diagonal)), a.HS,
                         {q + t0 * a.stride(), a.stride(), 1}, keys_of_j, kTile,
                         scores + t0 * kTile, kTile, false);
        });
        softmax_tile(r, scores, rows, keys, diagonal, a.scale());
        for (int t = 0; t < rows && j > 0; t++) {
            if (r.shrink[t] == 1.f) continue;
            float* const row = sum + t * width;
            vec_map(
                width, row, [f = r.shrink[t]](Vec x) { return x * f; }, row);
        }
        visit_stripes(rows, diagonal, [&](int t0, int count) {
            tile_product(count, width, visible_keys(t0, keys, diagonal),
                         {scores + t0 * kTile, kTile, 1}, values, width, sum + t0 * width, width,
                         j > 0);
        });
    }
    for (int t = 0; t < rows; t++) {
        vec_map(
            a.HS, out + t * a.output_stride(), [f = 1.f / r.sum[t]](Vec x) { return x * f; },
            sum + t * width);
        lse[t] = r.max[t] + std::log(r.sum[t]);
    }
}

void attention_forward(float* out, float* lse, const float* qkv, int B, int T, int H, int KV,
                       int HS, Workspace ws, CpuStream) {
    const PhaseTimer timer(Phase::Attention);
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

// Scores and dP of one tile become P = exp(S - lse) and dS = P * (dP - D) * scale. On the diagonal
// both are 0 behind it as far as a stripe can see.
static void backward_scores(const BackwardSlot& s, const float* lse, const float* D, int rows,
                            int keys, bool diagonal, float scale) {
    for (int t = 0; t < rows; t++) {
        float *const p = s.p + t * kTile, *const ds = s.ds + t * kTile;
        const int width = round_to_lanes(visible_keys(t / kStripe * kStripe, keys, diagonal));
        const Vec factor = vec_all(scale), shift = vec_all(-lse[t]), d = vec_all(D[t]);
        for (int u = 0; u < width; u += kLanes) {
            const Vec e = vec_exp(vec_fma(vec_load(p + u), factor, shift));
            vec_store(p + u, e);
            vec_store(ds + u, e * (vec_load(ds + u) - d) * factor);
        }
        if (!diagonal) continue;
        std::fill(p + t + 1, p + width, 0.f);
        std::fill(ds + t + 1, ds + width, 0.f);
    }
}

// One tile of queries against one of keys: adds to dk, dv, dq, (tile, padded) each.
static void backward_tile(const BackwardSlot& s, const float* q, const float* dout, float* dq,
                          float* dk, float* dv, const float* lse, const float* D, int rows,
                          int keys, bool diagonal, const Heads& a) {
    const int width = a.padded();
    visit_stripes(rows, diagonal, [&](int t0, int count) {
        const int visible = round_to_lanes(visible_keys(t0, keys, diagonal));
        tile_product(count, visible, a.HS, {q + t0 * width, width, 1}, s.k_transposed, kTile,
                     s.p + t0 * kTile, kTile, false);
        tile_product(count, visible, a.HS, {dout + t0 * width, width, 1}, s.v_transposed, kTile,
                     s.ds + t0 * kTile, kTile, false);
    });
    backward_scores(s, lse, D, rows, keys, diagonal, a.scale());
    visit_stripes(rows, diagonal, [&](int t0, int count) {
        tile_product(count, width, visible_keys(t0, keys, diagonal), {s.ds + t0 * kTile, kTile, 1},
                     s.k, width, dq + t0 * width, width, true);
    });
    // Keys from u0 on are seen by the queries from u0 on, on the diagonal.
    visit_stripes(keys, diagonal, [&](int u0, int count) {
        const int t0 = diagonal ? u0 : 0, at = t0 * kTile + u0;
        tile_product(count, width, rows - t0, {s.p + at, 1, kTile}, dout + t0 * width, width,
                     dv + u0 * width, width, true);
        tile_product(count, width, rows - t0, {s.ds + at, 1, kTile}, q + t0 * width, width,
                     dk + u0 * width, width, true);
    });
}

// Adds one query head's part to s.dk and s.dv and leaves its dq in s.dq.
static void backward_head(const BackwardSlot& s, const float* k, const float* v, const float* lse,
                          const Heads& a) {
    const int64_t width = a.padded();
    const int tiles = tile_count(a.T);
    std::fill_n(s.dq, a.T * width, 0.f);
    for (int j = 0; j < tiles; j++) {
        const int64_t u0 = int64_t(j) * kTile;
        const int keys = a.rows_in_tile(j);
        copy_rows(s.k, a.padded(), k + u0 * a.stride(), a.stride(), keys, a.HS);
        copy_transposed(s.k_transposed, k + u0 * a.stride(), a.stride(), keys, a.HS);
        copy_transposed(s.v_transposed, v + u0 * a.stride(), a.stride(), keys, a.HS);
        for (int i = j; i < tiles; i++) {
            const int64_t t0 = int64_t(i) * kTile;
            backward_tile(s, s.q + t0 * width, s.dout + t0 * width, s.dq + t0 * width,
                          s.dk + u0 * width, s.dv + u0 * width, lse + t0, s.D + t0,
                          a.rows_in_tile(i), keys, i == j, a);
        }
    }
}

void attention_backward(float* dqkv, const float* dout, const float* qkv, const float* out,
                        const float* lse, int B, int T, int H, int KV, int HS, Workspace ws,
                        CpuStream) {
    const PhaseTimer timer(Phase::Attention);
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
                const int64_t row = t * a.output_stride();
                s.D[t] = dot(head_dout + row, head_out + row, HS);
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
#pragma omp parallel for schedule(static) if (int64_t(t) * H * HS > 16384)
    for (int h = 0; h < H; h++) {
        const int64_t kv = h / (H / KV), stride = int64_t(KV) * HS;
        float* const o = out + int64_t(h) * HS;
        std::fill_n(o, HS, 0.f);
        Running r;
        for (int u0 = 0; u0 <= t; u0 += kTile) {
            float p[kTile];
            const int keys = std::min(kTile, t + 1 - u0);
            const float *const k = kcache + u0 * stride + kv * HS, *const v = vcache + (k - kcache);
            for (int u = 0; u < keys; u++) p[u] = dot(q + int64_t(h) * HS, k + u * stride, HS);
            softmax_tile(r, p, 1, keys, false, scale);
            vec_map(
                HS, o, [f = r.shrink[0]](Vec x) { return x * f; }, o);
            for (int u = 0; u < keys; u++) {
                const auto add = [f = p[u]](Vec sum, Vec x) { return sum + x * f; };
                vec_map(HS, o, add, o, v + u * stride);
            }
        }
        vec_map(
            HS, o, [f = 1.f / r.sum[0]](Vec x) { return x * f; }, o);
    }
}
