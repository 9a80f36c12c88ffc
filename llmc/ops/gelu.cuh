// llmc/ops/gelu.cuh: GELU and its derivative for one element on the device; formulas in gelu.h.
#pragma once
#include <cuda_runtime.h>

__device__ __forceinline__ float gelu_value(float x) {
    const float u = 0.79788456f * (x + 0.044715f * x * x * x);  // sqrt(2 / pi)
    return 0.5f * x * (1 + tanhf(u));
}

__device__ __forceinline__ float gelu_slope(float x) {
    // Beyond +-32 the derivative is exactly 1 or 0 in fp32. Without the clamp x * x overflows from
    // 1e19 on, and 0 * infinity would be NaN.
    x = fminf(fmaxf(x, -32.f), 32.f);
    const float u = 0.79788456f * (x + 0.044715f * x * x * x), t = tanhf(u);
    return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * 0.79788456f * (1 + 3 * 0.044715f * x * x);
}
