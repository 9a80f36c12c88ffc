// llmc/io/llama2c_model.h: LLaMA model files of llama2.c (stories15M.bin and its kin), read.
//
//   header, 7 x int32: C, F, layers, heads, key/value heads, V (negative: the head is not tied),
//   max_T
//   then fp32, every layer's inside one: tok_emb (V, C), att_norm (C), wq (C, C), wk (KV*HS, C),
//   wv (KV*HS, C), wo (C, C), ffn_norm (C), w1 gate (F, C), w2 down (C, F), w3 up (F, C),
//   final_norm (C), two tables of angles (max_T, HS/2) that nobody reads, head (V, C) unless tied
// Weights are (out, in) as here; q and k are in rotary embedding's original order of pairs.
#pragma once
#include <string>

#include "llmc/core/layout.h"

struct Llama2cHeader {
    int C = 0, F = 0, L = 0, H = 0, KV = 0, V = 0, max_T = 0;
    bool tied = true;
};

// Reads and checks header and file size. The format has no magic number: a file is one if its sizes
// are possible and make its length. Errors: Usage when there is no such file, Damaged when it is no
// whole model file (found and expected).
Llama2cHeader llama2c_model_header(const std::string& path);

// The file's tensors. `layout` is the layout of the model that the header describes.
TensorSource llama2c_model_source(const std::string& path, const ParamLayout& layout);
