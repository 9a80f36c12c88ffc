// GELU on the CPU: element by element, bits independent of threads and position.
#include "llmc/ops/gelu.h"

#include <algorithm>

#include "llmc/core/phase.h"
#include "llmc/ops/vector_math.h"

constexpr int64_t kBlock = 4096;  // elements of a thread at a time

void gelu_forward(float* y, const float* x, size_t n, CpuStream) {
    const PhaseTimer timer(Phase::Other);
#pragma omp parallel for schedule(static) if (int64_t(n) > kBlock)
    for (int64_t i = 0; i < int64_t(n); i += kBlock)
        vec_map(std::min<int64_t>(kBlock, n - i), y + i, vec_gelu, x + i);
}

void gelu_backward(float* dx, const float* dy, const float* x, size_t n, CpuStream) {
    const PhaseTimer timer(Phase::Other);
    const auto chain = [](Vec dy, Vec x) { return dy * vec_gelu_derivative(x); };
#pragma omp parallel for schedule(static) if (int64_t(n) > kBlock)
    for (int64_t i = 0; i < int64_t(n); i += kBlock)
        vec_map(std::min<int64_t>(kBlock, n - i), dx + i, chain, dy + i, x + i);
}
