// llmc/ops/rmsnorm.h: scale each row of x by its root mean square: a layer norm without mean and
// shift.
//   rstd[n] = 1 / sqrt(sum_c x[n,c]^2 / C + eps),   y[n,c] = x[n,c] * rstd[n] * w[c]
// Backward, with xhat = x * rstd and g = dy * w:
//   dx = rstd * (g - xhat * mean_c(g * xhat)),  dw += sum_n dy * xhat
// Zhang, Sennrich 2019, arXiv:1910.07467, section 3.
// Definition: rmsnorm_cpu.cpp.  Fast: rmsnorm.cu.  Proof: rmsnorm_test.cpp.
#pragma once
#include "llmc/core/backend.h"
#include "llmc/core/dtype.h"

// clang-format off
void rmsnorm_forward(float* y,        // (N, C)  =
                     float* rstd,     // (N)     =   saved for backward
                     const float* x,  // (N, C)
                     const float* w,  // (C)
                     int N, int C, float eps, CpuStream s);
template <class Elem>
void rmsnorm_forward(Elem* y, float* rstd, const Elem* x, const Elem* w, int N, int C, float eps,
                     CudaStream s);

// Fused: add a branch to the residual stream, then normalise the sum.
//   residual = x + branch,  y = rmsnorm(residual)
void residual_rmsnorm_forward(float* residual,      // (N, C)  =   may be the same as x
                              float* y,             // (N, C)  =
                              float* rstd,          // (N)     =   saved for backward
                              const float* x,       // (N, C)
                              const float* branch,  // (N, C)
                              const float* w,       // (C)
                              int N, int C, float eps, CpuStream s);
template <class Elem>
void residual_rmsnorm_forward(Elem* residual, Elem* y, float* rstd, const Elem* x,
                              const Elem* branch, const Elem* w, int N, int C, float eps,
                              CudaStream s);

// Scratch of both backward functions: partial sums of dw.
size_t rmsnorm_backward_workspace_bytes(int N, int C, CpuStream s);
size_t rmsnorm_backward_workspace_bytes(int N, int C, CudaStream s);

void rmsnorm_backward(float* dx,          // (N, C)  =
                      float* dw,          // (C)     +=
                      const float* dy,    // (N, C)
                      const float* x,     // (N, C)
                      const float* w,     // (C)
                      const float* rstd,  // (N)
                      int N, int C, Workspace ws, CpuStream s);
template <class Elem>
void rmsnorm_backward(Elem* dx, float* dw, const Elem* dy, const Elem* x, const Elem* w,
                      const float* rstd, int N, int C, Workspace ws, CudaStream s);

// Backward of residual_rmsnorm: what flows through the norm is added to the gradient that reaches
// the residual stream from above. It is then the gradient of both x and branch.
void residual_rmsnorm_backward(float* dresidual,       // (N, C)  +=
                               float* dw,              // (C)     +=
                               const float* dy,        // (N, C)
                               const float* residual,  // (N, C)
                               const float* w,         // (C)
                               const float* rstd,      // (N)
                               int N, int C, Workspace ws, CpuStream s);
template <class Elem>
void residual_rmsnorm_backward(Elem* dresidual, float* dw, const Elem* dy, const Elem* residual,
                               const Elem* w, const float* rstd, int N, int C, Workspace ws,
                               CudaStream s);
// clang-format on
