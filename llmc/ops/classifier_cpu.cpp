// Softmax and cross-entropy on the CPU. A row of logits (201 kB at V = 50304) stays in the
// second-level cache over its passes: maximum, exponentials and their sum, scaling. Rows are
// independent, so bits depend on nothing else.
#include "llmc/ops/classifier.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdint>

#include "llmc/core/phase.h"
#include "llmc/ops/vector_math.h"

static float row_max(const float* x, int V) {
    Vec most = vec_all(x[0]);
    int v = 0;
    for (; v + kLanes <= V; v += kLanes) most = vec_max(vec_load(x + v), most);
    float m = vec_max_lanes(most);
    for (; v < V; v++) m = x[v] > m ? x[v] : m;
    return m;
}

// sum_v exp(x[v] - m), in double over chunks so that its error does not grow with V. The
// exponentials go to e, which may be x, or nowhere if it is null.
static double row_sum_exp(float* e, const float* x, float m, int V) {
    constexpr int kChunk = 32 * kLanes;
    const Vec shift = vec_all(m);
    double total = 0;
    for (int v0 = 0; v0 < V; v0 += kChunk) {
        const int end = std::min(V, v0 + kChunk);
        Vec sum{};
        int v = v0;
        for (; v + kLanes <= end; v += kLanes) {
            const Vec value = vec_exp(vec_load(x + v) - shift);
            if (e) vec_store(e + v, value);
            sum += value;
        }
        total += vec_sum_lanes(sum);
        for (; v < end; v++) {
            const float value = vec_exp(x[v] - m);
            if (e) e[v] = value;
            total += value;
        }
    }
    return total;
}

void classifier_forward(float* losses, const float* logits, const int* targets, int N, int V,
                        int Vp, CpuStream) {
    const PhaseTimer timer(Phase::Classifier);
#pragma omp parallel for schedule(static)
    for (int n = 0; n < N; n++) {
        losses[n] = 0.f;
        if (targets[n] == kIgnoreTarget) continue;
        assert(0 <= targets[n] && targets[n] < V);
        const float* x = logits + int64_t(n) * Vp;
        const float m = row_max(x, V);
        const double sum = row_sum_exp(nullptr, x, m, V);
        losses[n] = float(std::log(sum) + m - x[targets[n]]);
    }
}

void classifier_forward_backward(float* losses, float* logits, const int* targets, float scale,
                                 int N, int V, int Vp, CpuStream) {
    const PhaseTimer timer(Phase::Classifier);
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
        const double sum = row_sum_exp(x, x, m, V);
        losses[n] = float(std::log(sum) + m - target);
        const float factor = float(scale / sum);
        vec_map(
            V, x, [factor](Vec value) { return value * factor; }, x);
        x[targets[n]] -= scale;
    }
}
