// Causal attention on the CPU, row by row.
#include "llmc/ops/attention.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "llmc/ops/vector_math.h"

static float dot(const float* a, const float* b, int n) {
    float sum = 0.f;
#pragma omp simd reduction(+ : sum)
    for (int i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

size_t attention_forward_workspace_bytes(int B, int T, int H, int, int, CpuStream) {
    return size_t(B) * H * T * sizeof(float);
}

void attention_forward(float* out, float* lse, const float* qkv, int B, int T, int H, int KV,
                       int HS, Workspace ws, CpuStream) {
    const int64_t stride = int64_t(H + 2 * KV) * HS;
    const float scale = 1.f / std::sqrt(float(HS));
#pragma omp parallel for schedule(static)
    for (int64_t bh = 0; bh < int64_t(B) * H; bh++) {
        const int64_t b = bh / H, h = bh % H, kv = h / (H / KV);
        const float* q = qkv + b * T * stride + h * HS;
        const float* k = qkv + b * T * stride + (H + kv) * HS;
        const float* v = k + int64_t(KV) * HS;
        float* p = static_cast<float*>(ws.data) + bh * T;
        for (int64_t t = 0; t < T; t++) {
            float m = -INFINITY, sum = 0.f;
            for (int64_t u = 0; u <= t; u++) {
                p[u] = scale * dot(q + t * stride, k + u * stride, HS);
                m = std::max(m, p[u]);
            }
            for (int64_t u = 0; u <= t; u++) sum += p[u] = vexp(p[u] - m);
            float* o = out + ((b * T + t) * H + h) * HS;
            std::fill_n(o, HS, 0.f);
            for (int64_t u = 0; u <= t; u++)
                for (int i = 0; i < HS; i++) o[i] += p[u] / sum * v[u * stride + i];
            lse[bh * T + t] = m + std::log(sum);
        }
    }
}

size_t attention_backward_workspace_bytes(int, int, int, int, int, CpuStream) {
    return 0;
}

void attention_backward(float* dqkv, const float* dout, const float* qkv, const float* out,
                        const float* lse, int B, int T, int H, int KV, int HS, Workspace,
                        CpuStream) {
    const int64_t stride = int64_t(H + 2 * KV) * HS, group = H / KV;
    const float scale = 1.f / std::sqrt(float(HS));
#pragma omp parallel for schedule(static)
    for (int64_t bk = 0; bk < int64_t(B) * KV; bk++) {
        const int64_t b = bk / KV, kv = bk % KV, row0 = b * T * stride;
        const float *k = qkv + row0 + (H + kv) * HS, *v = k + int64_t(KV) * HS;
        float *dk = dqkv + row0 + (H + kv) * HS, *dv = dk + int64_t(KV) * HS;
        for (int64_t t = 0; t < T; t++) {
            std::fill_n(dk + t * stride, HS, 0.f);
            std::fill_n(dv + t * stride, HS, 0.f);
            std::fill_n(dqkv + row0 + t * stride + kv * group * HS, group * HS, 0.f);
        }
        for (int64_t h = kv * group; h < (kv + 1) * group; h++) {
            for (int64_t t = 0; t < T; t++) {
                const float* q = qkv + row0 + t * stride + h * HS;
                float* dq = dqkv + row0 + t * stride + h * HS;
                const float* o = out + ((b * T + t) * H + h) * HS;
                const float* d = dout + ((b * T + t) * H + h) * HS;
                const float D = dot(o, d, HS), l = lse[(b * H + h) * T + t];
                for (int64_t u = 0; u <= t; u++) {
                    const float p = vexp(scale * dot(q, k + u * stride, HS) - l);
                    const float ds = p * (dot(d, v + u * stride, HS) - D) * scale;
                    for (int i = 0; i < HS; i++) {
                        dv[u * stride + i] += p * d[i];
                        dq[i] += ds * k[u * stride + i];
                        dk[u * stride + i] += ds * q[i];
                    }
                }
            }
        }
    }
}

void attention_decode(float* out, const float* q, const float* kcache, const float* vcache, int t,
                      int H, int KV, int HS, CpuStream) {
    const float scale = 1.f / std::sqrt(float(HS));
#pragma omp parallel for schedule(static)
    for (int h = 0; h < H; h++) {
        const int64_t kv = h / (H / KV), stride = int64_t(KV) * HS;
        float* o = out + int64_t(h) * HS;
        std::fill_n(o, HS, 0.f);
        float m = -INFINITY, sum = 0.f;
        // The running maximum rises at most a few times; what was summed before is scaled down.
        for (int64_t u = 0; u <= t; u++) {
            const float s = scale * dot(q + int64_t(h) * HS, kcache + u * stride + kv * HS, HS);
            if (s > m) {
                const float shrink = vexp(m - s);
                for (int i = 0; i < HS; i++) o[i] *= shrink;
                sum *= shrink;
                m = s;
            }
            const float p = vexp(s - m);
            sum += p;
            for (int i = 0; i < HS; i++) o[i] += p * vcache[u * stride + kv * HS + i];
        }
        for (int i = 0; i < HS; i++) o[i] /= sum;
    }
}
