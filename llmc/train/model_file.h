// llmc/train/model_file.h: other programs' model files, of whichever kind: what they hold and how
// to read it, piece by piece, so that no model need fit into memory and a rank reads what it holds.
//   llm.c     GPT-2, by its magic number (llmc/io/llmc_model.h)
//   llama2.c  LLaMA, by its length (llmc/io/llama2c_model.h)
//   a folder  Hugging Face's config.json and safetensors (llmc/train/hf.h)
#pragma once
#include <memory>
#include <string>

#include "llmc/core/layout.h"
#include "llmc/io/tokenizer.h"
#include "llmc/model/config.h"

struct ModelFile {
    ModelConfig cfg;
    ParamLayout layout;  // param_layout(cfg)
    TensorSource read;   // of the layout's tensors
};

// Is this path for model_file_open? A folder with a config.json, or a file that is no JSON; what
// has the form of a checkpoint or of an --out directory is not.
bool model_file_is(const std::string& path);

// Errors: Usage when there is no such file, Damaged when it is whole in neither format.
ModelFile model_file_open(const std::string& path);

// The tokenizer in a model's folder. Null where there is none, and, with a note on stderr, where
// there is one that we cannot use: the model is good without it.
std::unique_ptr<Tokenizer> model_file_tokenizer(const std::string& path);
