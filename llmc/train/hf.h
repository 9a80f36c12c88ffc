// llmc/train/hf.h: models as Hugging Face folders: config.json, safetensors, tokenizer.
//
// A folder's tensors are parts of ours: q, k, v and gate, up are rows of one matrix here; GPT-2's
// matrices stand there as (in, out) and are transposed; a model with the original order of rotary
// pairs is written in the order of halves.
#pragma once
#include <string>
#include <vector>

#include "llmc/core/dtype.h"
#include "llmc/core/layout.h"
#include "llmc/io/tokenizer.h"
#include "llmc/model/config.h"

// A tensor of a folder, and where its rows are in one of ours.
struct HfPart {
    std::string name;
    std::vector<int64_t> shape;
    int64_t first_row, rows, columns;  // of our tensor, which is (.., columns)
    bool transposed = false;           // there (columns, rows)
    int pair_head = 0;                 // > 0: rows of heads this long, in the order of halves there
                                       // and of pairs here

    // The row here of their row, and the row there of ours; both counted from the part's first.
    int64_t our_row(int64_t their_row) const;
    int64_t their_row(int64_t our_row) const;
};

// The parts of one of our tensors.
std::vector<HfPart> hf_parts(const ModelConfig& cfg, const ParamTensor& tensor);

// The folder's tensors as ours. Errors, before anything is read (Damaged): missing and extra
// tensors, listed; wrong shapes and dtypes, found and expected.
TensorSource hf_model_source(const std::string& folder, const ModelConfig& cfg,
                             const ParamLayout& layout);

// Writes a new folder (made, or empty), asking for each element of the layout's tensors once.
// dtype: F32 or BF16. tokenizer may be null. On an error the folder is empty.
void hf_model_write(const std::string& folder, const ModelConfig& cfg, const TensorSource& source,
                    const ParamLayout& layout, const Tokenizer* tokenizer, Dtype dtype,
                    int64_t file_bytes = int64_t(5) << 30);
