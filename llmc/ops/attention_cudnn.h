// llmc/ops/attention_cudnn.h: the attention of attention.h by NVIDIA's cuDNN, where it is asked
// for. bf16 on CUDA only; same layouts, same saved log-sum-exp. The library is loaded at run time,
// so a build needs no more than its headers, and works without them too (cudnn_plan.h). Proof
// without a GPU: attention_cudnn_test.cpp.
#pragma once
#include "llmc/core/backend.h"
#include "llmc/core/dtype.h"
#include "llmc/ops/cudnn_graph.h"

// Whose kernels serve bf16 on CUDA. deterministic: cuDNN's backward too gives equal bits every
// time, for a workspace of 2 bytes a score, B H T T; without it sums go through atomic additions.
struct AttentionChoice {
    bool cudnn = false;
    bool deterministic = true;
};
extern AttentionChoice attention_choice;

// As in attention.h. Error(Exit::Usage) where cuDNN has no kernel for the sizes: heads of a
// multiple of 8 up to 128 are served everywhere. Each size's kernels are made when it is first
// seen, about a second each.
size_t attention_cudnn_workspace_bytes(int B, int T, int H, int KV, int HS, bool backward);
void attention_cudnn_forward(bf16* out,        // (B, T, H*HS)         =
                             float* lse,       // (B, H, T)            =
                             const bf16* qkv,  // (B, T, (H+2*KV)*HS)
                             int B, int T, int H, int KV, int HS, Workspace ws, CudaStream s);
void attention_cudnn_backward(bf16* dqkv,        // (B, T, (H+2*KV)*HS)  =
                              const bf16* dout,  // (B, T, H*HS)
                              const bf16* qkv,   // (B, T, (H+2*KV)*HS)
                              const bf16* out,   // (B, T, H*HS)
                              const float* lse,  // (B, H, T)
                              int B, int T, int H, int KV, int HS, Workspace ws, CudaStream s);

// ---- what cuDNN is told
namespace cudnn {

struct AttentionSize {
    int64_t B, T, H, KV, HS;
    auto operator<=>(const AttentionSize&) const = default;
    int64_t packed() const { return (H + 2 * KV) * HS; }  // numbers in a row of qkv
};

// How the tensors in memory are known to an execution. The last two are scratch.
enum AttentionTensor : int64_t { kQ, kK, kV, kOut, kLse, kDout, kDq, kDk, kDv, kDelta, kDqSum };

Graph attention_forward_graph(const AttentionSize& z);
Graph attention_backward_graph(const AttentionSize& z, bool deterministic);

}  // namespace cudnn
