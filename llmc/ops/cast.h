// llmc/ops/cast.h: change the element type, rounding to nearest, ties to even.
//   y[i] = x[i]
// bf16 to float is exact. A NaN stays a NaN, infinities stay, and what rounds beyond the largest
// bf16 becomes an infinity, as IEEE 754 wants.
// Definition: cast_cpu.cpp.  Fast: cast.cu.  Proof: cast_test.cpp, cast_cuda_test.cu.
#pragma once
#include "llmc/core/backend.h"
#include "llmc/core/dtype.h"

void cast(bf16* y,         // (n)  =
          const float* x,  // (n)
          size_t n, CpuStream s);
void cast(bf16* y, const float* x, size_t n, CudaStream s);

void cast(float* y,       // (n)  =
          const bf16* x,  // (n)
          size_t n, CpuStream s);
void cast(float* y, const bf16* x, size_t n, CudaStream s);
