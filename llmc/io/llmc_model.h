// llmc/io/llmc_model.h: GPT-2 model files of llm.c (gpt2_124M.bin and its kin), read and written.
//
//   header, 256 x int32: [0] = 20240326, [1] = 3 (all fp32) or 5 (all bf16), [2] = max_seq_len,
//   [3] = V, [4] = layers, [5] = heads, [6] = C, [7] = padded vocabulary, the rest 0
//   then the tensors, every layer's inside one: wte (Vp, C), wpe (max_T, C), ln1w, ln1b, qkvw,
//   qkvb, attprojw, attprojb, ln2w, ln2b, fcw, fcb, fcprojw, fcprojb (L, ...), lnfw, lnfb (C)
// Weights are (out, in) as here. The head is tied; rows of wte past V are zero.
#pragma once
#include <string>

#include "llmc/core/dtype.h"
#include "llmc/core/layout.h"

// Sizes from the header of a model file.
struct LlmcModelHeader {
    Dtype dtype = Dtype::F32;
    int max_T = 0, V = 0, L = 0, H = 0, C = 0, Vp = 0;
};

// Has the file this format's magic number?
bool llmc_model_is(const std::string& path);

// Reads and checks header and file size. Errors: Usage when there is no such file, Damaged when it
// is no whole model file (magic, version, size: found and expected).
LlmcModelHeader llmc_model_header(const std::string& path);

// The file's tensors; bf16 becomes fp32. `layout` is the layout of the model that the header
// describes. Damaged when the padding of wte is not zero.
TensorSource llmc_model_source(const std::string& path, const ParamLayout& layout);

// Writes the file, to a temporary name first; replaces an existing one only when all is on disk.
// Asks for each element once. dtype F32 makes version 3, BF16 (rounded to nearest) version 5.
void llmc_model_write(const std::string& path, const TensorSource& source,
                      const ParamLayout& layout, LlmcModelHeader header);
