// llmc/ops/gelu.h: the Gaussian error linear unit, tanh form (what GPT-2 was trained with).
//   y = 0.5 x (1 + tanh(u)),  u = sqrt(2/pi) (x + 0.044715 x^3)
//   dx = dy * (0.5 (1 + tanh(u)) + 0.5 x (1 - tanh(u)^2) sqrt(2/pi) (1 + 3 * 0.044715 x^2))
// Finite for every finite x, forward and backward.
// Hendrycks, Gimpel 2016, arXiv:1606.08415, section 2.
// Definition: gelu_cpu.cpp.  Fast: gelu.cu.  Proof: gelu_test.cpp.
#pragma once
#include "llmc/core/backend.h"
#include "llmc/core/dtype.h"

void gelu_forward(float* y,        // (n)  =   may be the same as x
                  const float* x,  // (n)
                  size_t n, CpuStream s);
template <class Elem>
void gelu_forward(Elem* y, const Elem* x, size_t n, CudaStream s);

void gelu_backward(float* dx,        // (n)  =   may be the same as dy
                   const float* dy,  // (n)
                   const float* x,   // (n)
                   size_t n, CpuStream s);
template <class Elem>
void gelu_backward(Elem* dx, const Elem* dy, const Elem* x, size_t n, CudaStream s);
