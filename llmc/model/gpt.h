// llmc/model/gpt.h: the whole model: embedding, layers, head; forward, backward, loss.
#pragma once
#include "llmc/model/activations.h"
#include "llmc/model/parameters.h"
#include "llmc/parallel/shards.h"

template <class Elem, class Stream>
struct Gpt {
    ModelConfig cfg;
    Recompute recompute;
    Stream stream;
    Activations<Elem> acts;
    FixedSum* loss_sum;  // (1)  on the device: sum of the losses since gpt_loss_reset
};

// Plans or allocates the activations of B sequences of T tokens; forward_only: evaluation alone.
template <class Elem, class Stream>
Gpt<Elem, Stream> gpt_create(const ModelConfig& cfg, int B, int T, Recompute recompute,
                             bool forward_only, Memory<Stream>& memory);

// Forward and backward of one micro-batch. Gradients are += into the shards' blocks, the losses of
// valid targets are added to loss_sum. loss = sum over targets != -1 of cross-entropy * scale, with
// scale = 1 / (valid targets of the whole global batch), fixed before backward: no rank divides
// again.
template <class Elem, class Stream>
void gpt_forward_backward(Gpt<Elem, Stream>& g, Shards<Elem, Stream>& shards,
                          const int* tokens,   // (B, T)  host
                          const int* targets,  // (B, T)  host, -1 = ignored
                          float scale);

// Forward only: adds the losses to loss_sum. Per-token losses stay in g.acts.losses (B, T).
template <class Elem, class Stream>
void gpt_forward_loss(Gpt<Elem, Stream>& g, Shards<Elem, Stream>& shards, const int* tokens,
                      const int* targets);

// Forward of all layers; the head's input (after the final norm) is in g.acts.lnf (B, T, C).
template <class Elem, class Stream>
void gpt_forward(Gpt<Elem, Stream>& g, Shards<Elem, Stream>& shards, const int* tokens);

// After gpt_forward: the logits of row n, in host memory.
template <class Elem, class Stream>
void gpt_logits(Gpt<Elem, Stream>& g, Shards<Elem, Stream>& shards, int64_t n,
                float* logits  // (V)  =
);

template <class Elem, class Stream>
void gpt_loss_reset(Gpt<Elem, Stream>& g);
// The exact sum of losses since the reset; waits for the stream.
template <class Elem, class Stream>
FixedSum gpt_loss_sum(Gpt<Elem, Stream>& g);
