#include "llmc/train/hf.h"

#include <algorithm>
#include <cassert>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "llmc/core/check.h"
#include "llmc/core/round.h"
#include "llmc/io/safetensors.h"
#include "llmc/io/tokenizer_sentencepiece.h"

namespace fs = std::filesystem;

int64_t HfPart::our_row(int64_t row) const {
    if (!pair_head) return row;
    const int64_t in_head = row % pair_head, half = pair_head / 2;
    return row - in_head + (in_head < half ? 2 * in_head : 2 * (in_head - half) + 1);
}

int64_t HfPart::their_row(int64_t row) const {
    if (!pair_head) return row;
    const int64_t in_head = row % pair_head;
    return row - in_head + in_head / 2 + (in_head % 2 ? pair_head / 2 : 0);
}

// The name of a tensor with one part, which it has, in place of another.
static std::string with_part(std::string name, const std::string& from, const std::string& to) {
    const size_t at = name.find(from);
    assert(at != std::string::npos);
    return name.replace(at, from.size(), to);
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
        return {part(with_part(t.name, "qkv_proj", "q_proj"), 0, a, pairs),
                part(with_part(t.name, "qkv_proj", "k_proj"), a, kv, pairs),
                part(with_part(t.name, "qkv_proj", "v_proj"), a + kv, kv)};
    }
    if (has(".gate_up_proj."))
        return {part(with_part(t.name, "gate_up_proj", "gate_proj"), 0, c.F),
                part(with_part(t.name, "gate_up_proj", "up_proj"), c.F, c.F)};
    // The norm of a head has its elements in the order of the head.
    const bool pairs =
        c.rope_pairs == RopePairs::Interleaved && (has(".q_norm.") || has(".k_norm."));
    HfPart whole = part(t.name, 0, rows, pairs ? c.HS() : 0);
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

// The parts of each of our tensors, found in the folder.
static std::map<std::string, std::vector<HfPart>> hf_match(const std::string& folder,
                                                           const SafeTensors& file,
                                                           const ModelConfig& cfg,
                                                           const ParamLayout& layout) {
    const auto& there = file.tensors();
    std::set<std::string> used;
    std::vector<std::string> missing, extra;
    const auto shape_text = [](const std::vector<int64_t>& shape) {
        return nlohmann::json(shape).dump();
    };
    std::map<std::string, std::vector<HfPart>> parts;
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
                const SafeTensor& found = there.at(p.name);
                CHECK(found.shape == p.shape, Exit::Damaged, folder + ": wrong shape of " + p.name,
                      shape_text(found.shape), shape_text(p.shape),
                      "does config.json belong to these weights?");
                CHECK(safetensor_is_float(found), Exit::Damaged,
                      folder + ": unsupported dtype of " + p.name, found.dtype, "F32, BF16 or F16");
                parts[t.name].push_back(p);
            }
    for (const auto& [name, tensor] : there)
        if (!used.count(name) && !hf_is_buffer(name) && !(cfg.tied && name == "lm_head.weight"))
            extra.push_back(name);
    CHECK(missing.empty(), Exit::Damaged, folder + " lacks tensors of its model", "",
          listed(missing));
    CHECK(extra.empty(), Exit::Damaged,
          folder + " has tensors that its config.json does not explain", listed(extra));

    return parts;
}

// to = elements first .. first + n of our tensor, which lie inside the part.
static void part_read(const SafeTensors& file, const HfPart& p, int64_t first, int64_t n,
                      float* to) {
    const int64_t row = first / p.columns, last = (first + n - 1) / p.columns;
    if (p.transposed) {
        // Our rows row..last are a stretch of each row there.
        std::vector<float> stretch(size_t(last - row + 1));
        for (int64_t c = 0; c < p.columns; c++) {
            file.read(p.name, c * p.rows + row - p.first_row, int64_t(stretch.size()),
                      stretch.data());
            for (int64_t r = row; r <= last; r++)
                if (const int64_t i = r * p.columns + c - first; i >= 0 && i < n)
                    to[i] = stretch[size_t(r - row)];
        }
    } else if (p.pair_head) {
        for (int64_t at = first, end = first + n, count; at < end; at += count) {
            const int64_t column = at % p.columns;
            count = std::min(end - at, p.columns - column);
            file.read(p.name, p.their_row(at / p.columns - p.first_row) * p.columns + column, count,
                      to + (at - first));
        }
    } else {
        file.read(p.name, first - p.first_row * p.columns, n, to);
    }
}

TensorSource hf_model_source(const std::string& folder, const ModelConfig& cfg,
                             const ParamLayout& layout) {
    const auto file = std::make_shared<const SafeTensors>(folder);
    const auto parts = hf_match(folder, *file, cfg, layout);
    return [=](const ParamTensor& t, int64_t first, int64_t n, float* to) {
        for (const HfPart& p : parts.at(t.name)) {
            const int64_t begin = std::max(first, p.first_row * p.columns);
            const int64_t end = std::min(first + n, (p.first_row + p.rows) * p.columns);
            if (begin < end) part_read(*file, p, begin, end - begin, to + (begin - first));
        }
    };
}

// ---- writing
// to = elements first .. first + n of the folder's tensor, each read once.
static void part_fill(const TensorSource& source, const ParamTensor& t, const HfPart& p,
                      int64_t first, int64_t n, float* to) {
    const int64_t end = first + n;
    if (p.transposed) {
        // Element (c, r) there is (r, c) here: of each of our rows, a stretch of columns.
        std::vector<float> stretch(size_t(n / p.rows + 1));
        for (int64_t r = 0; r < p.rows; r++) {
            const int64_t begin = first > r ? ceil_div(first - r, p.rows) : 0;
            const int64_t count = end > r ? (end - 1 - r) / p.rows + 1 - begin : 0;
            if (count <= 0) continue;
            source(t, (p.first_row + r) * p.columns + begin, count, stretch.data());
            for (int64_t c = 0; c < count; c++)
                to[(begin + c) * p.rows + r - first] = stretch[size_t(c)];
        }
    } else if (p.pair_head) {
        for (int64_t at = first, count; at < end; at += count) {
            const int64_t column = at % p.columns;
            count = std::min(end - at, p.columns - column);
            source(t, (p.first_row + p.our_row(at / p.columns)) * p.columns + column, count,
                   to + (at - first));
        }
    } else {
        source(t, p.first_row * p.columns + first, n, to);
    }
}

static void json_write(const std::string& path, const nlohmann::ordered_json& json) {
    file_replace(path, json.dump(2) + "\n");
}

// The ids that end what a model writes, the one that ends documents first.
static std::vector<int> ends_of_text(const Tokenizer& tokenizer) {
    std::vector<int> ends;
    for (int id = 0; id < tokenizer.vocab_size(); id++)
        if (tokenizer.ends_text(id) && !(id == tokenizer.eot() && tokenizer.begins_texts()))
            ends.push_back(id);
    // Qwen's <|im_end|> ends what is said, <|endoftext|> what is read.
    const auto eot = std::find(ends.begin(), ends.end(), tokenizer.eot());
    if (eot != ends.end()) std::rotate(ends.begin(), eot, eot + 1);
    return ends;
}

// Each kind in the files in which other programs look for it: the classes that transformers makes
// of them, and its names for the tokens that begin and end a text.
static void hf_tokenizer_write(const std::string& folder, const Tokenizer& tokenizer, int max_T) {
    nlohmann::ordered_json tokens;
    if (tokenizer.eot() >= 0) tokens["bos_token"] = tokenizer.special_text(tokenizer.eot());
    const std::vector<int> ends = ends_of_text(tokenizer);
    if (!ends.empty()) tokens["eos_token"] = tokenizer.special_text(ends[0]);
    nlohmann::ordered_json config = tokens;
    config["model_max_length"] = max_T;
    config["clean_up_tokenization_spaces"] = false;

    const std::string json = tokenizer.json();
    const std::string model = sentencepiece_from_json(json, tokenizer.name());
    if (model.empty()) {
        // The file says itself what goes before a text.
        config["tokenizer_class"] = "PreTrainedTokenizerFast";
        file_replace(folder + "/tokenizer.json", json);
    } else {
        config["tokenizer_class"] = "LlamaTokenizer";
        config["add_bos_token"] = tokenizer.begins_texts();
        config["add_eos_token"] = false;
        config["legacy"] = true;  // what follows a special token begins as a text does, as here
        file_replace(folder + "/tokenizer.model", model);
    }
    json_write(folder + "/tokenizer_config.json", config);
    json_write(folder + "/special_tokens_map.json", tokens);
}

// Into an empty folder.
static void hf_files_write(const std::string& folder, const ModelConfig& cfg,
                           const TensorSource& source, const ParamLayout& layout,
                           const Tokenizer* tokenizer, Dtype dtype, int64_t file_bytes) {
    std::vector<SafeTensorSource> sources;
    for (const ParamBlock& b : layout.blocks)
        for (const ParamTensor& t : b.tensors)
            for (const HfPart& p : hf_parts(cfg, t))
                sources.push_back(
                    {p.name, p.shape, [&source, &t, p](int64_t first, int64_t n, float* to) {
                         part_fill(source, t, p, first, n, to);
                     }});
    safetensors_write(folder, sources, dtype, file_bytes);
    ModelConfig written = cfg;
    written.rope_pairs = RopePairs::Half;
    nlohmann::ordered_json config = model_config_to_json(written);
    config["torch_dtype"] = dtype == Dtype::BF16 ? "bfloat16" : "float32";
    if (tokenizer) {
        hf_tokenizer_write(folder, *tokenizer, cfg.max_T);
        nlohmann::ordered_json generation;
        if (tokenizer->eot() >= 0) config["bos_token_id"] = tokenizer->eot();
        if (tokenizer->eot() >= 0) generation["bos_token_id"] = tokenizer->eot();
        const std::vector<int> ends = ends_of_text(*tokenizer);
        if (!ends.empty()) config["eos_token_id"] = ends[0];
        if (ends.size() > 1) generation["eos_token_id"] = ends;
        if (ends.size() == 1) generation["eos_token_id"] = ends[0];
        json_write(folder + "/generation_config.json", generation);
    }
    json_write(folder + "/config.json", config);  // last: now it is a model
    sync_dir(folder);
}

void hf_model_write(const std::string& folder, const ModelConfig& cfg, const TensorSource& source,
                    const ParamLayout& layout, const Tokenizer* tokenizer, Dtype dtype,
                    int64_t file_bytes) {
    std::error_code none;
    CHECK(
        !fs::exists(folder, none) || (fs::is_directory(folder, none) && fs::is_empty(folder, none)),
        Exit::Usage, "the folder to write exists and is not empty", folder, "a new or empty one");
    fs::create_directories(folder, none);
    CHECK(fs::is_directory(folder, none), Exit::Resource, "cannot make the folder " + folder);
    try {
        hf_files_write(folder, cfg, source, layout, tokenizer, dtype, file_bytes);
    } catch (...) {
        for (fs::directory_iterator file(folder, none), end; file != end; file.increment(none))
            fs::remove(file->path(), none);
        throw;
    }
}
