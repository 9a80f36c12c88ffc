// llmc/ops/attention.h: causal multi-head attention in blocks, so that memory grows
// with T, not T^2.
//   q, k, v are read from the packed rows qkv[b,t] = (q_0..q_{H-1}, k_0..k_{KV-1}, v_0..v_{KV-1}),
//   each head HS wide; query head h uses key/value head h / (H / KV) (grouped-query attention).
//   S[t,u]   = q[t] . k[u] / sqrt(HS)          for u <= t
//   lse[t]   = log sum_u exp(S[t,u])
//   out[t]   = sum_u exp(S[t,u] - lse[t]) v[u]
// Backward recomputes P = exp(S - lse) tile by tile; with D[t] = dout[t] . out[t]:
//   dv[u] = sum_t P[t,u] dout[t],  dS = P * (dout v^T - D),
//   dq = dS k / sqrt(HS),  dk = dS^T q / sqrt(HS)
// Dao et al. 2022, arXiv:2205.14135, algorithms 1 to 4. Derivation: dev/doc/attention.md.
// Definition: attention_cpu.cpp.  Fast: attention.cu.  Proof: attention_test.cpp.
#pragma once
#include "llmc/core/backend.h"
#include "llmc/core/dtype.h"

size_t attention_forward_workspace_bytes(int B, int T, int H, int KV, int HS, CpuStream s);
size_t attention_forward_workspace_bytes(int B, int T, int H, int KV, int HS, CudaStream s);

void attention_forward(float* out,        // (B, T, H*HS)         =
                       float* lse,        // (B, H, T)            =   saved for backward
                       const float* qkv,  // (B, T, (H+2*KV)*HS)
                       int B, int T, int H, int KV, int HS, Workspace ws, CpuStream s);
template <class Elem>
void attention_forward(Elem* out, float* lse, const Elem* qkv, int B, int T, int H, int KV, int HS,
                       Workspace ws, CudaStream s);

size_t attention_backward_workspace_bytes(int B, int T, int H, int KV, int HS, CpuStream s);
size_t attention_backward_workspace_bytes(int B, int T, int H, int KV, int HS, CudaStream s);

void attention_backward(float* dqkv,        // (B, T, (H+2*KV)*HS)  =
                        const float* dout,  // (B, T, H*HS)
                        const float* qkv,   // (B, T, (H+2*KV)*HS)
                        const float* out,   // (B, T, H*HS)
                        const float* lse,   // (B, H, T)
                        int B, int T, int H, int KV, int HS, Workspace ws, CpuStream s);
template <class Elem>
void attention_backward(Elem* dqkv, const Elem* dout, const Elem* qkv, const Elem* out,
                        const float* lse, int B, int T, int H, int KV, int HS, Workspace ws,
                        CudaStream s);

// One new token a sequence against a cache, for generation (CPU only until a GPU needs it).
// Row t = position of the new token; the cache holds positions 0..t, this one included.
void attention_decode(float* out,           // (H*HS)  =
                      const float* q,       // (H*HS)
                      const float* kcache,  // (t+1, KV*HS)
                      const float* vcache,  // (t+1, KV*HS)
                      int t, int H, int KV, int HS, CpuStream s);
