// llmc/ops/swiglu.h: the gated MLP's activation. One GEMM makes both halves of a row, gate and up.
//   pre[n] = (gate_0..gate_{F-1}, up_0..up_{F-1}),   s = 1 / (1 + e^-gate)
//   y[n,f] = gate s up
// Backward:
//   dup = dy gate s,   dgate = dy up s (1 + gate (1 - s))
// Finite wherever its inputs' product is. Shazeer 2020, arXiv:2002.05202, section 2.
// Definition: swiglu_cpu.cpp.  Fast: swiglu.cu.  Proof: swiglu_test.cpp.
#pragma once
#include "llmc/core/backend.h"

void swiglu_forward(float* y,          // (N, F)    =
                    const float* pre,  // (N, 2*F)
                    int N, int F, CpuStream s);
template <class Elem>
void swiglu_forward(Elem* y, const Elem* pre, int N, int F, CudaStream s);

void swiglu_backward(float* dpre,       // (N, 2*F)  =   may be the same as pre
                     const float* dy,   // (N, F)
                     const float* pre,  // (N, 2*F)
                     int N, int F, CpuStream s);
template <class Elem>
void swiglu_backward(Elem* dpre, const Elem* dy, const Elem* pre, int N, int F, CudaStream s);
