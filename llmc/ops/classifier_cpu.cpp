// Softmax and cross-entropy on the CPU. A row of logits (201 kB at V = 50304) stays in the
// second-level cache over its passes: maximum, exponentials and their sum, scaling. Rows are
// independent, so bits depend on nothing else.
#include "llmc/ops/classifier.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "llmc/ops/vector_math.h"

static float row_max(const float* x, int V) {
    float m = x[0];
#pragma omp simd reduction(max : m)
    for (int v = 0; v < V; v++) m = x[v] > m ? x[v] : m;
    return m;
}

// sum_v exp(x[v] - m), in double over chunks so that its error does not grow with V. Where x may be
// written, the exponentials take its place.
template <class Float>
static double row_sum_exp(Float* x, float m, int V) {
    constexpr int kChunk = 512;
    double total = 0;
    for (int v0 = 0; v0 < V; v0 += kChunk) {
        float sum = 0.f;
        const int end = std::min(V, v0 + kChunk);
#pragma omp simd reduction(+ : sum)
        for (int v = v0; v < end; v++) {
            const float e = vexp(x[v] - m);
            if constexpr (!std::is_const_v<Float>) x[v] = e;
            sum += e;
        }
        total += sum;
    }
    return total;
}

void classifier_forward(float* losses, const float* logits, const int* targets, int N, int V,
                        int Vp, CpuStream) {
#pragma omp parallel for schedule(static)
    for (int n = 0; n < N; n++) {
        losses[n] = 0.f;
        if (targets[n] == kIgnoreTarget) continue;
        assert(0 <= targets[n] && targets[n] < V);
        const float* x = logits + int64_t(n) * Vp;
        const float m = row_max(x, V);
        const double sum = row_sum_exp(x, m, V);
        losses[n] = float(std::log(sum) + m - x[targets[n]]);
    }
}

void classifier_forward_backward(float* losses, float* logits, const int* targets, float scale,
                                 int N, int V, int Vp, CpuStream) {
#pragma omp parallel for schedule(static)
    for (int n = 0; n < N; n++) {
        float* x = logits + int64_t(n) * Vp;
        std::fill(x + V, x + Vp, 0.f);
        losses[n] = 0.f;
        if (targets[n] == kIgnoreTarget) {
            std::fill(x, x + V, 0.f);
            continue;
        }
        assert(0 <= targets[n] && targets[n] < V);
        const float m = row_max(x, V), target = x[targets[n]];
        const double sum = row_sum_exp(x, m, V);
        losses[n] = float(std::log(sum) + m - target);
        const float factor = float(scale / sum);
#pragma omp simd
        for (int v = 0; v < V; v++) x[v] *= factor;
        x[targets[n]] -= scale;
    }
}
