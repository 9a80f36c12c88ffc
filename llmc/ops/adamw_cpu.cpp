// AdamW on the CPU: one pass over p, m, v and grad, bound by memory (32 bytes an element).
#include "llmc/ops/adamw.h"

#include <cmath>

#include "llmc/core/phase.h"

void adamw_update(float* p, float* m, float* v, float* grad, const float* grad_scale, size_t n,
                  AdamW hyper, CpuStream s) {
    const PhaseTimer timer(Phase::Optimizer);
    if (*grad_scale == 0.f) return memory_zero(grad, n * sizeof(float), s);
    // The bias corrections in double: 1 - beta^t cancels when beta is near 1.
    const float fix_m = float(1 / (1 - std::pow(double(hyper.beta1), double(hyper.t))));
    const float fix_v = float(1 / (1 - std::pow(double(hyper.beta2), double(hyper.t))));
    const float scale = *grad_scale, lr = hyper.lr, eps = hyper.eps, decay = hyper.weight_decay;
    const float beta1 = hyper.beta1, beta2 = hyper.beta2, rest1 = 1.f - beta1, rest2 = 1.f - beta2;
#pragma omp parallel for simd schedule(static)
    for (size_t i = 0; i < n; i++) {
        const float g = scale * grad[i];
        const float mi = beta1 * m[i] + rest1 * g;
        const float vi = beta2 * v[i] + rest2 * (g * g);
        m[i] = mi;
        v[i] = vi;
        p[i] -= lr * (mi * fix_m / (std::sqrt(vi * fix_v) + eps) + decay * p[i]);
        grad[i] = 0.f;
    }
}
