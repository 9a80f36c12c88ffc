// The decision over a step's gradient on CUDA: one thread, a few words; the launch is all it costs.
// Double-precision square root and division are rounded as IEEE 754 wants: the CPU's bits.
#include "llmc/ops/clip.h"

#include <cmath>

#include "llmc/ops/fixed_sum_format.h"
#include "llmc/ops/kernel.cuh"

namespace {

__global__ void gradient_clip_kernel(float* scale, float* norm, const FixedSum* squares,
                                     const FixedSum* loss, int* out_of_range, double most) {
    const float n =
        *out_of_range ? __uint_as_float(0x7fc00000u) : float(sqrt(limbs_value(*squares)));
    // False for NaN too.
    const bool finite = fabsf(n) < INFINITY && fabs(limbs_value(*loss)) < INFINITY;
    *norm = n;
    *out_of_range = 0;
    *scale = !finite ? 0.f : most > 0 && n > most ? float(most / double(n)) : 1.f;
}

}  // namespace

void gradient_clip(float* scale, float* norm, const FixedSum* squares, const FixedSum* loss,
                   int* out_of_range, double most, CudaStream s) {
    launch(gradient_clip_kernel, 1, 1, 0, s, scale, norm, squares, loss, out_of_range, most);
}
