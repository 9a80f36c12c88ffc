// llmc/ops/matmul.h: linear layers, y = x w^T + b, with the GELU that follows fused in.
// Weights are (out, in), row-major, as in torch.nn.Linear.
//   forward:   y[n,o]  = sum_c x[n,c] w[o,c] + b[o]
//   backward:  dx[n,c] = sum_o dy[n,o] w[o,c],  dw[o,c] += sum_n dy[n,o] x[n,c],
//              db[o] += sum_n dy[n,o]
// Definition: matmul_cpu.cpp (by gemm.h).  Fast: matmul.cu (cuBLASLt).  Proof: matmul_test.cpp.
#pragma once
#include "llmc/core/backend.h"
#include "llmc/core/dtype.h"

// Scratch of any function below at these sizes.
size_t matmul_workspace_bytes(int N, int C, int OC, CpuStream s);
size_t matmul_workspace_bytes(int N, int C, int OC, CudaStream s);

void matmul_forward(float* y,        // (N, OC)  =
                    const float* x,  // (N, C)
                    const float* w,  // (OC, C)
                    const float* b,  // (OC), or null
                    int N, int C, int OC, Workspace ws, CpuStream s);
template <class Elem>
void matmul_forward(Elem* y, const Elem* x, const Elem* w, const Elem* b, int N, int C, int OC,
                    Workspace ws, CudaStream s);

// act = gelu(pre), pre = x w^T + b. pre is saved for backward; pass null where no backward follows.
void matmul_gelu_forward(float* act,      // (N, OC)  =
                         float* pre,      // (N, OC)  =   saved for backward, or null
                         const float* x,  // (N, C)
                         const float* w,  // (OC, C)
                         const float* b,  // (OC), or null
                         int N, int C, int OC, Workspace ws, CpuStream s);
template <class Elem>
void matmul_gelu_forward(Elem* act, Elem* pre, const Elem* x, const Elem* w, const Elem* b, int N,
                         int C, int OC, Workspace ws, CudaStream s);

void matmul_backward_input(float* dx,        // (N, C)  =
                           const float* dy,  // (N, OC)
                           const float* w,   // (OC, C)
                           int N, int C, int OC, Workspace ws, CpuStream s);
template <class Elem>
void matmul_backward_input(Elem* dx, const Elem* dy, const Elem* w, int N, int C, int OC,
                           Workspace ws, CudaStream s);

// The layer's input was x = gelu(pre): dpre = (dy w) * gelu'(pre).
void matmul_backward_input_gelu(float* dpre,       // (N, C)  =
                                const float* dy,   // (N, OC)
                                const float* w,    // (OC, C)
                                const float* pre,  // (N, C)
                                int N, int C, int OC, Workspace ws, CpuStream s);
template <class Elem>
void matmul_backward_input_gelu(Elem* dpre, const Elem* dy, const Elem* w, const Elem* pre, int N,
                                int C, int OC, Workspace ws, CudaStream s);

void matmul_backward_params(float* dw,        // (OC, C)  +=
                            float* db,        // (OC)     +=  or null
                            const float* dy,  // (N, OC)
                            const float* x,   // (N, C)
                            int N, int C, int OC, Workspace ws, CpuStream s);
template <class Elem>
void matmul_backward_params(float* dw, float* db, const Elem* dy, const Elem* x, int N, int C,
                            int OC, Workspace ws, CudaStream s);
