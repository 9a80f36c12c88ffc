#include "llmc/ops/clip.h"

#include <cmath>

void gradient_clip(float* scale, float* norm, const FixedSum* squares, const FixedSum* loss,
                   int* out_of_range, double most, CpuStream) {
    *norm = *out_of_range ? std::nanf("") : float(std::sqrt(fixed_sum_value(*squares)));
    *out_of_range = 0;
    const bool finite = std::isfinite(*norm) && std::isfinite(fixed_sum_value(*loss));
    *scale = !finite ? 0.f : most > 0 && *norm > most ? float(most / double(*norm)) : 1.f;
}
