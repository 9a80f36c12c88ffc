// GELU on the CPU: element by element, bits independent of threads and position.
#include "llmc/ops/gelu.h"

#include "llmc/ops/vector_math.h"

void gelu_forward(float* y, const float* x, size_t n, CpuStream) {
#pragma omp parallel for simd schedule(static)
    for (size_t i = 0; i < n; i++) y[i] = gelu(x[i]);
}

void gelu_backward(float* dx, const float* dy, const float* x, size_t n, CpuStream) {
#pragma omp parallel for simd schedule(static)
    for (size_t i = 0; i < n; i++) dx[i] = dy[i] * gelu_derivative(x[i]);
}
