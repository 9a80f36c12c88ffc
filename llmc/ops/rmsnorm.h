// llmc/ops/rmsnorm.h: scale each row of x by its root mean square: a layer norm without mean and
// shift.
//   rstd[n] = 1 / sqrt(sum_c x[n,c]^2 / C + eps),   y[n,c] = x[n,c] * rstd[n] * w[c]
// Backward, with xhat = x * rstd and g = dy * w:
//   dx = rstd * (g - xhat * mean_c(g * xhat)),  dw += sum_n dy * xhat
// Zhang, Sennrich 2019, arXiv:1910.07467, section 3.
// Definition: rmsnorm_cpu.cpp.  Proof: rmsnorm_test.cpp.
#pragma once
#include "llmc/core/backend.h"

// clang-format off
void rmsnorm_forward(float* y,        // (N, C)  =   may be the same as x where no backward follows
                     float* rstd,     // (N)     =   saved for backward
                     const float* x,  // (N, C)
                     const float* w,  // (C)
                     int N, int C, float eps, CpuStream s);

// Fused: add a branch to the residual stream, then normalise the sum.
//   residual = x + branch,  y = rmsnorm(residual)
void residual_rmsnorm_forward(float* residual,      // (N, C)  =   may be the same as x
                              float* y,             // (N, C)  =
                              float* rstd,          // (N)     =   saved for backward
                              const float* x,       // (N, C)
                              const float* branch,  // (N, C)
                              const float* w,       // (C)
                              int N, int C, float eps, CpuStream s);

// Scratch of both backward functions: partial sums of dw.
size_t rmsnorm_backward_workspace_bytes(int N, int C, CpuStream s);

void rmsnorm_backward(float* dx,          // (N, C)  =
                      float* dw,          // (C)     +=
                      const float* dy,    // (N, C)
                      const float* x,     // (N, C)
                      const float* w,     // (C)
                      const float* rstd,  // (N)
                      int N, int C, Workspace ws, CpuStream s);

// Backward of residual_rmsnorm: what flows through the norm is added to the gradient that reaches
// the residual stream from above. It is then the gradient of both x and branch.
void residual_rmsnorm_backward(float* dresidual,       // (N, C)  +=
                               float* dw,              // (C)     +=
                               const float* dy,        // (N, C)
                               const float* residual,  // (N, C)
                               const float* w,         // (C)
                               const float* rstd,      // (N)
                               int N, int C, Workspace ws, CpuStream s);
// clang-format on
