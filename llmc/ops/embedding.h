// llmc/ops/embedding.h: look up token and position vectors.
//   x[b,t,:] = wte[tokens[b,t],:] + wpe[t,:]
// Backward scatters dx back: dwte[tokens[b,t],:] += dx[b,t,:], dwpe[t,:] += sum_b dx[b,t,:], each
// in a fixed order (b, then t), so the sums have the same bits on every run.
//
// Definition: embedding_cpu.cpp.  Fast: embedding.cu.  Proof: embedding_test.cpp.
#pragma once
#include "llmc/core/backend.h"
#include "llmc/core/dtype.h"

void embedding_forward(float* x,           // (B, T, C)  =
                       const int* tokens,  // (B, T)     0 <= token < V
                       const float* wte,   // (V, C)
                       const float* wpe,   // (>= T, C), or null for a model without positions
                       int B, int T, int C, CpuStream s);
template <class Elem>
void embedding_forward(Elem* x, const int* tokens, const Elem* wte, const Elem* wpe, int B, int T,
                       int C, CudaStream s);

size_t embedding_backward_workspace_bytes(int B, int T, int C, int V, CpuStream s);
size_t embedding_backward_workspace_bytes(int B, int T, int C, int V, CudaStream s);

void embedding_backward(float* dwte,        // (V, C)    +=
                        float* dwpe,        // (>= T, C) +=  or null
                        const float* dx,    // (B, T, C)
                        const int* tokens,  // (B, T)
                        int B, int T, int C, int V, Workspace ws, CpuStream s);
template <class Elem>
void embedding_backward(float* dwte, float* dwpe, const Elem* dx, const int* tokens, int B, int T,
                        int C, int V, Workspace ws, CudaStream s);
