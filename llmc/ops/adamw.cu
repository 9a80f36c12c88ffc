// AdamW on CUDA: a thread updates a quad of neighbours and zeroes their gradient.
//
// Bytes an element: read p, m, v, grad (16), write them (16), write the low-precision copy (2 for
// bf16): 34, each moved once; the bandwidth of device memory bounds it.
//
// Every operation is rounded on its own (the _rn functions are never contracted), in the order of
// adamw_cpu.cpp: an element gets the same bits on CPU and GPU, and wherever a slice starts.
#include "llmc/ops/adamw.h"

#include <cmath>

#include "llmc/core/rng.h"
#include "llmc/ops/kernel.cuh"

namespace {

constexpr int kThreads = 256;

struct Constants {
    float lr, beta1, beta2, rest1, rest2, fix_m, fix_v, eps, weight_decay;
};

__device__ __forceinline__ void adamw_element(float& p, float& m, float& v, float& grad,
                                              float scale, const Constants& k) {
    const float g = __fmul_rn(scale, grad);
    m = __fadd_rn(__fmul_rn(k.beta1, m), __fmul_rn(k.rest1, g));
    v = __fadd_rn(__fmul_rn(k.beta2, v), __fmul_rn(k.rest2, __fmul_rn(g, g)));
    const float root = __fadd_rn(__fsqrt_rn(__fmul_rn(v, k.fix_v)), k.eps);
    const float step = __fdiv_rn(__fmul_rn(m, k.fix_m), root);
    p = __fsub_rn(p, __fmul_rn(k.lr, __fadd_rn(step, __fmul_rn(k.weight_decay, p))));
    grad = 0;
}

// ---- rounding of the low-precision copy
// Element i of a tensor takes word i % 4 of the Philox block (i / 4, name and step) under the seed.
// The step moves the name by an odd constant, so two steps share bits only if two names collide.
__device__ __forceinline__ PhiloxBlock rounding_bits(const RoundingKey& key, int64_t t,
                                                     uint64_t index) {
    return philox(index / 4, key.name + uint64_t(t) * 0x9E3779B97F4A7C15u, key.seed);
}

// Adds 16 random bits below the kept half: a carry comes with the probability of the dropped part.
__device__ __forceinline__ bf16 round_stochastic(float x, uint32_t random) {
    uint32_t bits = __float_as_uint(x);
    if ((bits & 0x7f800000u) == 0x7f800000u) return as_elem<bf16>(x);  // infinity, NaN
    bits += random & 0xffffu;
    return bf16{uint16_t(bits >> 16)};
}

__device__ __forceinline__ uint32_t word_of(const PhiloxBlock& r, int i) {
    return i == 0 ? r.x[0] : i == 1 ? r.x[1] : i == 2 ? r.x[2] : r.x[3];
}

__device__ __forceinline__ void low_copy(float* low, const Quad<float>& p, size_t i, size_t n,
                                         bool whole, const RoundingKey&, int64_t) {
    if (whole) {
        quad_store(low + i, p);
    } else {
        for (int k = 0; k < 4 && i + k < n; k++) low[i + k] = p[k];
    }
}
__device__ __forceinline__ void low_copy(bf16* low, const Quad<float>& p, size_t i, size_t n,
                                         bool whole, const RoundingKey& key, int64_t t) {
    Quad<bf16> out;
    if (!key.stochastic) {
#pragma unroll
        for (int k = 0; k < 4; k++) out[k] = as_elem<bf16>(p[k]);
    } else {
        // The quad spans at most two Philox blocks, one if the slice starts at a multiple of 4.
        const uint64_t index = key.index + i;
        const int shift = int(index % 4);
        const PhiloxBlock first = rounding_bits(key, t, index);
        PhiloxBlock second = first;
        if (shift != 0) second = rounding_bits(key, t, index + 4);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const int word = shift + k;
            out[k] =
                round_stochastic(p[k], word < 4 ? word_of(first, word) : word_of(second, word - 4));
        }
    }
    if (whole) {
        quad_store(low + i, out);
    } else {
        for (int k = 0; k < 4 && i + k < n; k++) low[i + k] = out[k];
    }
}

template <class Elem>
__global__ void __launch_bounds__(kThreads, 4)
    adamw_kernel(float* __restrict__ p, Elem* __restrict__ low, float* __restrict__ m,
                 float* __restrict__ v, float* __restrict__ grad,
                 const float* __restrict__ grad_scale, size_t n, Constants constants,
                 RoundingKey key, int64_t t, bool aligned) {
    const size_t i = (size_t(blockIdx.x) * kThreads + threadIdx.x) * 4;
    if (i >= n) return;
    const bool whole = aligned && i + 4 <= n;
    const float scale = *grad_scale;

    Quad<float> qp{}, qm{}, qv{}, qg{};
    if (scale == 0) {  // skip: only the gradient is zeroed
        if (whole) {
            quad_store(grad + i, qg);
        } else {
            for (int k = 0; k < 4 && i + k < n; k++) grad[i + k] = 0;
        }
        return;
    }

    // Load.
    if (whole) {
        qp = quad_load(p + i);
        qm = quad_load(m + i);
        qv = quad_load(v + i);
        qg = quad_load(grad + i);
    } else {
        for (int k = 0; k < 4 && i + k < n; k++) {
            qp[k] = p[i + k];
            qm[k] = m[i + k];
            qv[k] = v[i + k];
            qg[k] = grad[i + k];
        }
    }

    // Compute.
#pragma unroll
    for (int k = 0; k < 4; k++) adamw_element(qp[k], qm[k], qv[k], qg[k], scale, constants);

    // Store.
    if (whole) {
        quad_store(p + i, qp);
        quad_store(m + i, qm);
        quad_store(v + i, qv);
        quad_store(grad + i, qg);
    } else {
        for (int k = 0; k < 4 && i + k < n; k++) {
            p[i + k] = qp[k];
            m[i + k] = qm[k];
            v[i + k] = qv[k];
            grad[i + k] = qg[k];
        }
    }
    if (low) low_copy(low, qp, i, n, whole, key, t);
}

__global__ void __launch_bounds__(kThreads, 4)
    low_copy_kernel(bf16* __restrict__ low, const float* __restrict__ p, size_t n, RoundingKey key,
                    int64_t t, bool aligned) {
    const size_t i = (size_t(blockIdx.x) * kThreads + threadIdx.x) * 4;
    if (i >= n) return;
    const bool whole = aligned && i + 4 <= n;
    Quad<float> q{};
    if (whole) {
        q = quad_load(p + i);
    } else {
        for (int k = 0; k < 4 && i + k < n; k++) q[k] = p[i + k];
    }
    low_copy(low, q, i, n, whole, key, t);
}

}  // namespace

template <class Elem>
void adamw_update(float* p, Elem* low, float* m, float* v, float* grad, const float* grad_scale,
                  size_t n, AdamW hyper, RoundingKey key, CudaStream s) {
    if (n == 0) return;
    // The bias corrections in double: 1 - beta^t cancels when beta is near 1.
    const float fix_m = float(1 / (1 - std::pow(double(hyper.beta1), double(hyper.t))));
    const float fix_v = float(1 / (1 - std::pow(double(hyper.beta2), double(hyper.t))));
    const Constants constants{hyper.lr,          hyper.beta1, hyper.beta2, 1.f - hyper.beta1,
                              1.f - hyper.beta2, fix_m,       fix_v,       hyper.eps,
                              hyper.weight_decay};
    const bool aligned = quad_aligned(p) && quad_aligned(m) && quad_aligned(v) &&
                         quad_aligned(grad) && quad_aligned(low);
    launch(adamw_kernel<Elem>, blocks_for(n, kThreads * 4), kThreads, 0, s, p, low, m, v, grad,
           grad_scale, n, constants, key, hyper.t, aligned);
}

void adamw_low_copy(bf16* low, const float* p, size_t n, RoundingKey key, int64_t t, CudaStream s) {
    if (n == 0) return;
    launch(low_copy_kernel, blocks_for(n, kThreads * 4), kThreads, 0, s, low, p, n, key, t,
           quad_aligned(p) && quad_aligned(low));
}

template void adamw_update(float*, float*, float*, float*, float*, const float*, size_t, AdamW,
                           RoundingKey, CudaStream);
template void adamw_update(float*, bf16*, float*, float*, float*, const float*, size_t, AdamW,
                           RoundingKey, CudaStream);
