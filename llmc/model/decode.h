// llmc/model/decode.h: next-token logits with a key/value cache, for generation.
//
// Runs on the CPU, on fp32 parameters. Feeding n tokens at once (the prompt) or one by one gives the
// same logits up to the order of GEMM sums.
#pragma once
#include "llmc/core/memory.h"
#include "llmc/model/activations.h"
#include "llmc/model/parameters.h"
#include "llmc/parallel/shards.h"

class Decoder {
  public:
    // Plans or allocates caches for `capacity` positions (at most cfg.max_T) and scratch for
    // `batch` tokens fed at once.
    Decoder(const ModelConfig& cfg, int capacity, int batch, Memory<CpuStream>& memory);

    // Forgets all positions.
    void reset() { used_ = 0; }
    int used() const { return used_; }
    int capacity() const { return capacity_; }

    // Appends n tokens, used() + n <= capacity(); returns the logits (V) after the last of them,
    // valid until the next call.
    const float* feed(Shards<float, CpuStream>& shards, const int* tokens, int n);

  private:
    void feed_batch(Shards<float, CpuStream>& shards, const int* tokens, int n);

    ModelConfig cfg_;
    int capacity_, batch_, used_ = 0;
    float *res_, *norm_;         // (batch, C)
    float *qkv_, *att_;          // (batch, QKV), (batch, C)
    float *act_, *branch_;       // (batch, F), (batch, C)
    float *mean_, *rstd_;        // (batch)
    float *keys_, *values_;      // (L, capacity, KV*HS)
    float* logits_;              // (Vp)
    Workspace ws_;
};
