// llmc/ops/rope.h: rotary position embedding. Each pair (a, b) of a query's or key's elements is
// turned by an angle that grows with its position, so that q[t] . k[u] depends on t - u.
//   angle(t, i) = t f_i,   f_i = theta^(-2i / HS)                        for pair i < HS / 2
//   (a, b) = (a cos - b sin, a sin + b cos)
// Pairs: Half, elements i and i + HS/2 (Hugging Face's order); Interleaved, 2i and 2i+1 (the
// original order, llama2.c). The gradient is turned back by the same angle.
// Su et al. 2021, arXiv:2104.09864, section 3.2.2.
//
// Angles are tabulated once on the host, in double, so that every backend turns by the same bits.
// Definition: rope_cpu.cpp.  Fast: rope.cu.  Proof: rope_test.cpp.
#pragma once
#include <cmath>
#include <numbers>

#include "llmc/core/backend.h"

enum class RopePairs { Half, Interleaved };

// LLaMA 3.1's stretching of the context (Grattafiori et al. 2024, arXiv:2407.21783, section 3.4.2;
// constants in the model's config): wavelengths beyond old_context / low_freq_factor are divided by
// factor, those below old_context / high_freq_factor stay, between them it fades. factor 1: off.
struct RopeScaling {
    double factor = 1, low_freq_factor = 1, high_freq_factor = 4, old_context = 8192;
};

// f_i of pair i.
double rope_frequency(int i, int HS, double theta, const RopeScaling& scaling);

// table[t] = (cos of pairs 0..HS/2-1, sin of them) for positions first .. first + T - 1.
void rope_table(float* table,  // (T, HS)  =   host memory
                int first, int T, int HS, double theta, const RopeScaling& scaling);

// Turns the queries and keys of packed rows (attention.h) in place; values stay. direction +1:
// forward; -1: the gradient.
void rope(float* qkv,          // (B, T, (H+2*KV)*HS)  =
          const float* table,  // (T, HS)
          int B, int T, int H, int KV, int HS, RopePairs pairs, int direction, CpuStream s);
template <class Elem>
void rope(Elem* qkv, const float* table, int B, int T, int H, int KV, int HS, RopePairs pairs,
          int direction, CudaStream s);
