// llmc/ops/adamw.h: one AdamW step over n elements, decoupled weight decay.
//   g = grad_scale * grad
//   m = beta1 m + (1 - beta1) g,   v = beta2 v + (1 - beta2) g^2
//   p = p - lr * ((m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay * p)
// Every element gets the same bits wherever it lies: no contraction, no vector tail that rounds
// differently, so any slice of a tensor may be updated by anyone.
// Loshchilov, Hutter 2019, arXiv:1711.05101, algorithm 2.
// Definition: adamw_cpu.cpp.  Fast: adamw.cu.  Proof: adamw_test.cpp.
#pragma once
#include <cstdint>

#include "llmc/core/backend.h"
#include "llmc/core/dtype.h"

struct AdamW {
    float lr, beta1, beta2, eps, weight_decay;
    int64_t t;  // 1 for the first update
};

// Identifies an element for stochastic rounding: bits are a function of (seed, name, index, t).
struct RoundingKey {
    uint64_t seed = 0;
    uint64_t name = 0;   // hash of the tensor's name
    uint64_t index = 0;  // global index of element 0 of this slice
    bool stochastic = false;
};

// The gradient is read once and set to zero in the same pass, ready for the next step.
// grad_scale == 0 means: skip. Then p, m, v stay untouched and only the gradient is zeroed.
void adamw_update(float* p,                 // (n)  =
                  float* m, float* v,       // (n)  =
                  float* grad,              // (n)  in: gradient, out: 0
                  const float* grad_scale,  // (1)  clipping factor
                  size_t n, AdamW hyper, CpuStream s);
// With a low-precision copy of the parameters for the model; for Elem = float low may be null.
template <class Elem>
void adamw_update(float* p, Elem* low, float* m, float* v, float* grad, const float* grad_scale,
                  size_t n, AdamW hyper, RoundingKey key, CudaStream s);
// low = p, rounded as adamw_update does it at step t. So a resumed run has the low-precision copy
// of the run that was not stopped, and no checkpoint holds it.
void adamw_low_copy(bf16* low,       // (n)  =
                    const float* p,  // (n)
                    size_t n, RoundingKey key, int64_t t, CudaStream s);
