// llmc/train/sampler.h: the next token from logits.
//   p = softmax(logits / temperature), cut to the top_k most likely and to the smallest set whose
//   probability reaches top_p (Holtzman et al. 2020, arXiv:1904.09751, section 3.1), renormalised.
#pragma once
#include <cstdint>
#include <vector>

struct Sampling {
    double temperature = 1;  // 0: always the most likely token (the lowest id among equals)
    int top_k = 0;           // 0: all
    double top_p = 1;        // in (0, 1]; 1: all
    uint64_t seed = 0;
};

// The token at output position `index`: a pure function of (seed, index, logits). Large logits do
// not overflow: the maximum is subtracted first.
int sample_token(const float* logits,  // (V)
                 int V, const Sampling& how, uint64_t index);
