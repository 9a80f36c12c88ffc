// The decision over a step's gradient on CUDA: one thread, a few words; the launch is all it costs.
// Double-precision square root and division are rounded as IEEE 754 wants: the CPU's bits.
#include "llmc/ops/clip.h"

#include <cmath>

#include "llmc/ops/kernel.cuh"

namespace {

// fixed_sum_value of reduce_sums_cpu.cpp, step by step.
__device__ __forceinline__ double fixed_value(FixedSum s) {
    constexpr int kLimbBits = 50;
    constexpr int64_t kMask = (int64_t(1) << kLimbBits) - 1;
    if (s.bad > 0) return nan("");
    s.mid += s.lo >> kLimbBits;
    s.hi += s.mid >> kLimbBits;
    return double(s.hi) * 0x1p20 + double(s.mid & kMask) * 0x1p-30 + double(s.lo & kMask) * 0x1p-80;
}

__global__ void gradient_clip_kernel(float* scale, float* norm, const FixedSum* squares,
                                     const FixedSum* loss, int* out_of_range, double most) {
    const float n =
        *out_of_range ? __uint_as_float(0x7fc00000u) : float(sqrt(fixed_value(*squares)));
    // False for NaN too.
    const bool finite = fabsf(n) < INFINITY && fabs(fixed_value(*loss)) < INFINITY;
    *norm = n;
    *out_of_range = 0;
    *scale = !finite ? 0.f : most > 0 && n > most ? float(most / double(n)) : 1.f;
}

}  // namespace

void gradient_clip(float* scale, float* norm, const FixedSum* squares, const FixedSum* loss,
                   int* out_of_range, double most, CudaStream s) {
    launch(gradient_clip_kernel, 1, 1, 0, s, scale, norm, squares, loss, out_of_range, most);
}
