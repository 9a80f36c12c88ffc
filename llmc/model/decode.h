// llmc/model/decode.h: next-token logits, for generation.
//
// The CPU keeps the keys and values of all tokens in a cache: feeding n tokens at once (the prompt)
// or one by one gives the same logits up to the order of GEMM sums. A GPU runs the text again from
// its beginning through the kernels of training: some milliseconds a token, and no kernels of its
// own.
#pragma once
#include "llmc/core/memory.h"
#include "llmc/model/gpt.h"

template <class Elem, class Stream>
class Decoder;

template <>
class Decoder<float, CpuStream> {
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
    float *res_, *norm_;                       // (batch, C)
    float *qkv_, *att_;                        // (batch, QKV), (batch, A)
    float *qk_ = nullptr, *rstdqk_ = nullptr;  // what a norm of q and k keeps for backward
    float* pre_ = nullptr;                     // (batch, FC)  SwiGLU's
    float *act_, *branch_;                     // (batch, F), (batch, C)
    float* rope_ = nullptr;                    // (capacity, HS)  rotary positions
    float *mean_, *rstd_;                      // (batch)
    float *keys_, *values_;                    // (L, capacity, KV*HS)
    float* logits_;                            // (Vp)
    Workspace ws_;
};

// The same interface; `batch` is not needed.
template <class Elem>
class Decoder<Elem, CudaStream> {
  public:
    Decoder(const ModelConfig& cfg, int capacity, int batch, Memory<CudaStream>& memory);
    void reset() { text_.clear(); }
    int used() const { return int(text_.size()); }
    int capacity() const { return capacity_; }
    const float* feed(Shards<Elem, CudaStream>& shards, const int* tokens, int n);

  private:
    int capacity_;
    Gpt<Elem, CudaStream> gpt_;  // one sequence of `capacity` tokens, rounded up
    std::vector<int> text_;
    std::vector<float> logits_;  // (V)
};
