// Definition of cast.h: one element at a time, spread over the team.
#include "llmc/ops/cast.h"

void cast(bf16* y, const float* x, size_t n, CpuStream) {
#pragma omp parallel for simd schedule(static)
    for (size_t i = 0; i < n; i++) y[i] = to_bf16(x[i]);
}
