// llmc/ops/cast.h: fp32 to bf16 on the host, to nearest, ties to even; kernels round as they store.
//   y[i] = x[i]
// A NaN stays a NaN, infinities stay, and what rounds beyond the largest bf16 becomes an infinity,
// as IEEE 754 wants.
// Definition: cast_cpu.cpp.  Proof: cast_test.cpp.
#pragma once
#include "llmc/core/backend.h"
#include "llmc/core/dtype.h"

void cast(bf16* y,         // (n)  =
          const float* x,  // (n)
          size_t n, CpuStream s);
