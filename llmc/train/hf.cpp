#include "llmc/train/hf.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "llmc/core/check.h"
#include "llmc/io/safetensors.h"

namespace fs = std::filesystem;

int64_t HfPart::ours(int64_t i) const {
    if (transposed) return (first_row + i % rows) * columns + i / rows;
    int64_t row = i / columns;
    if (pair_head) {
        const int64_t in_head = row % pair_head, half = pair_head / 2;
        row += (in_head < half ? 2 * in_head : 2 * (in_head - half) + 1) - in_head;
    }
    return (first_row + row) * columns + i % columns;
}

static std::string replaced(std::string text, const std::string& from, const std::string& to) {
    return text.replace(text.find(from), from.size(), to);
}

std::vector<HfPart> hf_parts(const ModelConfig& c, const ParamTensor& t) {
    const int64_t rows = t.shape[0], columns = t.count() / rows;
    const auto part = [&](const std::string& name, int64_t first, int64_t n, int pair_head = 0) {
        HfPart p{name, t.shape, first, n, columns};
        p.shape[0] = n;
        p.pair_head = pair_head;
        return p;
    };
    const auto has = [&](const char* word) { return t.name.find(word) != std::string::npos; };
    if (has(".qkv_proj.")) {
        const int64_t a = c.A(), kv = int64_t(c.KV) * c.HS();
        const int pairs = c.rope_pairs == RopePairs::Interleaved ? c.HS() : 0;
        return {part(replaced(t.name, "qkv_proj", "q_proj"), 0, a, pairs),
                part(replaced(t.name, "qkv_proj", "k_proj"), a, kv, pairs),
                part(replaced(t.name, "qkv_proj", "v_proj"), a + kv, kv)};
    }
    if (has(".gate_up_proj."))
        return {part(replaced(t.name, "gate_up_proj", "gate_proj"), 0, c.F),
                part(replaced(t.name, "gate_up_proj", "up_proj"), c.F, c.F)};
    HfPart whole = part(t.name, 0, rows);
    if (c.positions == Positions::Learned && t.shape.size() == 2 && has(".h.")) {
        whole.transposed = true;
        whole.shape = {columns, rows};
    }
    return {whole};
}

// ---- reading
// Tensors of older files that hold no weights: masks and angles.
static bool hf_is_buffer(const std::string& name) {
    return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
           name.ends_with(".rotary_emb.inv_freq");
}

static std::string listed(const std::vector<std::string>& names) {
    std::string text;
    for (size_t i = 0; i < names.size() && i < 8; i++) text += (i ? ", " : "") + names[i];
    return names.size() > 8 ? str(text, " and ", names.size() - 8, " more") : text;
}

void hf_model_read(const std::string& folder, const ModelConfig& cfg, float* weights,
                   const ParamLayout& layout) {
    const SafeTensors file(folder);
    const auto& there = file.tensors();
    std::set<std::string> used;
    std::vector<std::string> missing, extra;
    const auto shape_text = [](const std::vector<int64_t>& shape) {
        return nlohmann::json(shape).dump();
    };
    // Names first: nothing is read from a folder that does not fit.
    std::vector<std::pair<float*, HfPart>> reads;
    for (const ParamBlock& b : layout.blocks)
        for (const ParamTensor& t : b.tensors)
            for (HfPart& p : hf_parts(cfg, t)) {
                const std::string base = "transformer.";  // some files leave it out
                if (!there.count(p.name) && p.name.starts_with(base) &&
                    there.count(p.name.substr(base.size())))
                    p.name = p.name.substr(base.size());
                if (!used.insert(p.name).second || !there.count(p.name)) {
                    missing.push_back(p.name);
                    continue;
                }
                CHECK(there.at(p.name).shape == p.shape, Exit::Damaged,
                      folder + ": wrong shape of " + p.name, shape_text(there.at(p.name).shape),
                      shape_text(p.shape), "does config.json belong to these weights?");
                reads.emplace_back(weights + b.offset + t.offset, p);
            }
    for (const auto& [name, tensor] : there)
        if (!used.count(name) && !hf_is_buffer(name) && !(cfg.tied && name == "lm_head.weight"))
            extra.push_back(name);
    CHECK(missing.empty(), Exit::Damaged, folder + " lacks tensors of its model", "",
          listed(missing));
    CHECK(extra.empty(), Exit::Damaged,
          folder + " has tensors that its config.json does not explain", listed(extra));

    constexpr int64_t kPiece = 1 << 20;
    std::vector<float> piece;
    for (const auto& [to, p] : reads) {
        const int64_t count = p.rows * p.columns;
        for (int64_t at = 0; at < count; at += kPiece) {
            piece.resize(size_t(std::min(kPiece, count - at)));
            file.read(p.name, at, int64_t(piece.size()), piece.data());
            for (size_t i = 0; i < piece.size(); i++) to[p.ours(at + int64_t(i))] = piece[i];
        }
    }
}

// ---- writing
void hf_model_write(const std::string& folder, const ModelConfig& cfg, const float* weights,
                    const ParamLayout& layout, const Tokenizer* tokenizer, Dtype dtype,
                    int64_t file_bytes) {
    std::error_code none;
    CHECK(
        !fs::exists(folder, none) || (fs::is_directory(folder, none) && fs::is_empty(folder, none)),
        Exit::Usage, "the folder to write exists and is not empty", folder, "a new or empty one");
    fs::create_directories(folder, none);
    CHECK(fs::is_directory(folder, none), Exit::Resource, "cannot make the folder " + folder);

    std::vector<SafeTensorSource> sources;
    for (const ParamBlock& b : layout.blocks)
        for (const ParamTensor& t : b.tensors)
            for (const HfPart& p : hf_parts(cfg, t)) {
                const float* from = weights + b.offset + t.offset;
                sources.push_back({p.name, p.shape, [from, p](int64_t first, int64_t n, float* to) {
                                       for (int64_t i = 0; i < n; i++)
                                           to[i] = from[p.ours(first + i)];
                                   }});
            }
    safetensors_write(folder, sources, dtype, file_bytes);
    if (tokenizer) file_replace(folder + "/tokenizer.json", tokenizer->json());
    ModelConfig written = cfg;
    written.rope_pairs = RopePairs::Half;
    nlohmann::json config = model_config_to_json(written);
    config["torch_dtype"] = dtype == Dtype::BF16 ? "bfloat16" : "float32";
    file_replace(folder + "/config.json", config.dump(2) + "\n");  // last: now it is a model
    sync_dir(folder);
}
