// llmc/train/model_file.h: other programs' model files, of whichever kind: what they hold and how to
// read it.
//   llm.c     GPT-2, by its magic number (llmc/io/llmc_model.h)
//   llama2.c  LLaMA, by its length (llmc/io/llama2c_model.h)
//   a folder  Hugging Face's config.json and safetensors (llmc/train/hf.h)
#pragma once
#include <functional>
#include <string>

#include "llmc/core/layout.h"
#include "llmc/model/config.h"

struct ModelFile {
    ModelConfig cfg;
    // weights (layout.size) = the file's tensors; layout: param_layout(cfg).
    std::function<void(float* weights, const ParamLayout& layout)> read;
};

// Errors: Usage when there is no such file, Damaged when it is whole in neither format.
ModelFile model_file_open(const std::string& path);
