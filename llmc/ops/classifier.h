// llmc/ops/classifier.h: softmax and cross-entropy in one pass over the logits.
//   loss[n]      = log sum_{v<V} exp(logits[n,v]) - logits[n,target[n]]     (0 where target is -1)
//   dlogits[n,v] = scale * (softmax(logits[n])[v] - [v == target[n]])       (0 where target is -1)
// Columns V..Vp-1 pad the vocabulary: they are never read and their gradient is exactly 0.
// Rows are independent, so the caller may work through N in chunks and never hold all the logits.
// Definition: classifier_cpu.cpp.  Fast: classifier.cu.  Proof: classifier_test.cpp.
#pragma once
#include "llmc/core/backend.h"
#include "llmc/core/dtype.h"

constexpr int kIgnoreTarget = -1;

// Losses only; the logits stay.
void classifier_forward(float* losses,        // (N)      =
                        const float* logits,  // (N, Vp)
                        const int* targets,   // (N)      0 <= target < V, or -1
                        int N, int V, int Vp, CpuStream s);
template <class Elem>
void classifier_forward(float* losses, const Elem* logits, const int* targets, int N, int V, int Vp,
                        CudaStream s);

// Losses, and the gradient in place of the logits.
void classifier_forward_backward(float* losses,       // (N)      =
                                 float* logits,       // (N, Vp)  =   in: logits, out: dlogits
                                 const int* targets,  // (N)
                                 float scale,  // 1 / number of valid tokens in the global batch
                                 int N, int V, int Vp, CpuStream s);
template <class Elem>
void classifier_forward_backward(float* losses, Elem* logits, const int* targets, float scale,
                                 int N, int V, int Vp, CudaStream s);
