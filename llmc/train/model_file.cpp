#include "llmc/train/model_file.h"

#include <cstdio>
#include <filesystem>

#include "llmc/core/check.h"
#include "llmc/io/llama2c_model.h"
#include "llmc/io/llmc_model.h"
#include "llmc/model/parameters.h"
#include "llmc/train/hf.h"

namespace fs = std::filesystem;

static ModelFile llmc_file(const std::string& path) {
    const LlmcModelHeader h = llmc_model_header(path);
    ModelConfig c;
    c.name = path;
    c.L = h.L, c.H = c.KV = h.H, c.C = h.C, c.F = 4 * h.C;
    c.V = h.V, c.Vp = vocab_padded(h.V), c.max_T = h.max_T;
    const ParamLayout layout = param_layout(c);
    return {c, layout, llmc_model_source(path, layout)};
}

static ModelFile llama2c_file(const std::string& path) {
    const Llama2cHeader h = llama2c_model_header(path);
    ModelConfig c = model_config("llama:tiny");  // its kind; its sizes are replaced
    c.name = path;
    c.L = h.L, c.H = h.H, c.KV = h.KV, c.C = h.C, c.F = h.F;
    c.V = h.V, c.Vp = vocab_padded(h.V), c.max_T = h.max_T, c.tied = h.tied;
    c.rope_pairs = RopePairs::Interleaved;
    const ParamLayout layout = param_layout(c);
    return {c, layout, llama2c_model_source(path, layout)};
}

static ModelFile hf_folder(const std::string& path) {
    ModelConfig c = model_config((fs::path(path) / "config.json").string());
    c.name = path;
    const ParamLayout layout = param_layout(c);
    return {c, layout, hf_model_source(path, c, layout)};
}

bool model_file_is(const std::string& path) {
    std::error_code none;
    const fs::path p = path;
    if (fs::is_directory(p, none))
        return fs::exists(p / "config.json", none) && !fs::exists(p / "manifest.json", none) &&
               !fs::exists(p / "ckpt", none);
    return fs::is_regular_file(p, none) && p.extension() != ".json";
}

ModelFile model_file_open(const std::string& path) {
    std::error_code none;
    if (fs::is_directory(path, none)) return hf_folder(path);
    return llmc_model_is(path) ? llmc_file(path) : llama2c_file(path);
}

std::unique_ptr<Tokenizer> model_file_tokenizer(const std::string& path) {
    try {
        return tokenizer_in_folder(path);
    } catch (const Error& e) {
        std::fprintf(stderr, "note: going on without the model's tokenizer: %s\n", e.what());
        return nullptr;
    }
}
