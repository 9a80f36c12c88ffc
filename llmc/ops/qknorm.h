// llmc/ops/qknorm.h: an RMS norm (rmsnorm.h) of each query head and each key head, as Qwen 3 has it
// before the rotary embedding: one weight for all query heads, one for all key heads.
//   q[h] = rmsnorm(q[h]; qw) for h < H,   k[h] = rmsnorm(k[h]; kw) for h < KV,   v stays
// Yang et al. 2025, arXiv:2505.09388, section 2; Henry et al. 2020, arXiv:2010.04245.
//
// In packed rows (attention.h), in place; what was there before is kept for backward.
// Definition: qknorm_cpu.cpp.  Fast: qknorm.cu.  Proof: qknorm_test.cpp.
#pragma once
#include "llmc/core/backend.h"
#include "llmc/core/dtype.h"

// clang-format off
void qknorm_forward(float* qkv,       // (N, (H+2*KV)*HS)  =  its queries and keys
                    float* qk,        // (N, (H+KV)*HS)    =  what they were; saved for backward
                    float* rstd,      // (N, H+KV)         =  saved for backward
                    const float* qw,  // (HS)
                    const float* kw,  // (HS)
                    int N, int H, int KV, int HS, float eps, CpuStream s);
template <class Elem>
void qknorm_forward(Elem* qkv, Elem* qk, float* rstd, const Elem* qw, const Elem* kw, int N, int H,
                    int KV, int HS, float eps, CudaStream s);

// Scratch of backward: partial sums of dqw and dkw.
size_t qknorm_backward_workspace_bytes(int N, int H, int KV, int HS, CpuStream s);
size_t qknorm_backward_workspace_bytes(int N, int H, int KV, int HS, CudaStream s);

void qknorm_backward(float* dqkv,        // (N, (H+2*KV)*HS)  =  in: of the results; out: of qk
                     float* dqw,         // (HS)  +=
                     float* dkw,         // (HS)  +=
                     const float* qk,    // (N, (H+KV)*HS)
                     const float* qw,    // (HS)
                     const float* kw,    // (HS)
                     const float* rstd,  // (N, H+KV)
                     int N, int H, int KV, int HS, Workspace ws, CpuStream s);
template <class Elem>
void qknorm_backward(Elem* dqkv, float* dqw, float* dkw, const Elem* qk, const Elem* qw,
                     const Elem* kw, const float* rstd, int N, int H, int KV, int HS, Workspace ws,
                     CudaStream s);
// clang-format on
