#include "llmc/train/model_file.h"

#include <filesystem>

#include "llmc/io/llama2c_model.h"
#include "llmc/io/llmc_model.h"
#include "llmc/train/hf.h"

static ModelFile llmc_file(const std::string& path) {
    const LlmcModelHeader h = llmc_model_header(path);
    ModelConfig c;
    c.name = path;
    c.L = h.L, c.H = c.KV = h.H, c.C = h.C, c.F = 4 * h.C;
    c.V = h.V, c.Vp = vocab_padded(h.V), c.max_T = h.max_T;
    return {c, [path](float* weights, const ParamLayout& layout) {
                llmc_model_read(path, weights, layout);
            }};
}

static ModelFile llama2c_file(const std::string& path) {
    const Llama2cHeader h = llama2c_model_header(path);
    ModelConfig c = model_config("llama:tiny");  // its kind; its sizes are replaced
    c.name = path;
    c.L = h.L, c.H = h.H, c.KV = h.KV, c.C = h.C, c.F = h.F;
    c.V = h.V, c.Vp = vocab_padded(h.V), c.max_T = h.max_T, c.tied = h.tied;
    c.rope_pairs = RopePairs::Interleaved;
    return {c, [path](float* weights, const ParamLayout& layout) {
                llama2c_model_read(path, weights, layout);
            }};
}

static ModelFile hf_folder(const std::string& path) {
    const ModelConfig c = model_config((std::filesystem::path(path) / "config.json").string());
    return {c, [path, c](float* weights, const ParamLayout& layout) {
                hf_model_read(path, c, weights, layout);
            }};
}

ModelFile model_file_open(const std::string& path) {
    std::error_code none;
    if (std::filesystem::is_directory(path, none)) return hf_folder(path);
    return llmc_model_is(path) ? llmc_file(path) : llama2c_file(path);
}
