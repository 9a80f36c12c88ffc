// llmc/model/parameters.h: which tensors a model has, and how they start.
#pragma once
#include <array>
#include <cstdint>

#include "llmc/core/layout.h"
#include "llmc/model/config.h"

// Blocks: the embedding, layers 0..L-1, the head.
ParamLayout param_layout(const ModelConfig& cfg);

// ---- typed views of a block: pointers into its buffer, of parameters or of their gradients; null
// for what the model does not have
template <class Elem>
struct EmbeddingParams {
    Elem* wte;  // (Vp, C)
    Elem* wpe;  // (max_T, C)  learned positions
};
template <class Elem>
struct LayerParams {
    Elem *ln1w, *ln1b;        // (C)       (C)
    Elem *qkvw, *qkvb;        // (QKV, C)  (QKV)
    Elem *projw, *projb;      // (C, A)    (C)
    Elem *ln2w, *ln2b;        // (C)       (C)
    Elem *fcw, *fcb;          // (FC, C)   (FC)   SwiGLU: gate rows, then up rows
    Elem *fcprojw, *fcprojb;  // (C, F)    (C)
    Elem *qnormw, *knormw;    // (HS)      (HS)   of each query head, each key head
};
template <class Elem>
struct HeadParams {
    Elem *lnfw, *lnfb;  // (C)  (C)
    Elem* lmw;          // (Vp, C), or null when the head is tied to wte
};

// The pointers of a view, in the order of its members: a tensor's slot is its place.
template <int kSlots, class Elem>
std::array<Elem*, kSlots> block_slots(const ParamBlock& b, Elem* base) {
    std::array<Elem*, kSlots> at{};
    for (const ParamTensor& t : b.tensors) at[size_t(t.slot)] = base + t.offset;
    return at;
}
template <class Elem>
EmbeddingParams<Elem> embedding_params(const ParamBlock& b, Elem* base) {
    const auto at = block_slots<2>(b, base);
    return {at[0], at[1]};
}
template <class Elem>
LayerParams<Elem> layer_params(const ParamBlock& b, Elem* base) {
    const auto at = block_slots<14>(b, base);
    return {at[0], at[1], at[2], at[3],  at[4],  at[5],  at[6],
            at[7], at[8], at[9], at[10], at[11], at[12], at[13]};
}
template <class Elem>
HeadParams<Elem> head_params(const ParamBlock& b, Elem* base) {
    const auto at = block_slots<3>(b, base);
    return {at[0], at[1], at[2]};
}

// x[i] = initial value of element first + i of the tensor: a function of (seed, name, index).
// GPT-2's rule: normal(0, 0.02), the projections back into the residual stream by sqrt(2 L) smaller
// (Radford et al. 2019, section 2.3), norm weights 1, biases 0, vocabulary padding 0.
void param_init(float* x,  // (n)  =
                const ParamTensor& tensor, int64_t first, int64_t n, uint64_t seed);
