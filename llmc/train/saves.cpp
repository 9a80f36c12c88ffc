#include "llmc/train/saves.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "llmc/core/check.h"
#include "llmc/core/hash.h"
#include "llmc/core/plural.h"
#include "llmc/io/json_integer.h"
#include "llmc/train/alike.h"
#include "llmc/train/options_table.h"
#include "llmc/train/progress.h"  // grouped

static void pieces_add(std::vector<TensorPiece>& pieces, const char* group,
                       const std::vector<TensorSlice>& slices) {
    for (const TensorSlice& s : slices)
        pieces.push_back(
            {group, s.tensor->name, Dtype::F32, s.tensor->shape, s.first, s.count, s.data});
}

template <class Elem, class Stream>
std::vector<TensorPiece> state_pieces(Shards<Elem, Stream>& shards, Groups groups, Pieces which) {
    std::vector<TensorPiece> pieces;
    pieces_add(pieces, "weights", shards.master_slices(which));
    if (groups == Groups::All) {
        pieces_add(pieces, "m", shards.moment_m_slices(which));
        pieces_add(pieces, "v", shards.moment_v_slices(which));
    }
    return pieces;
}

std::vector<std::vector<TensorPiece>> planned_pieces(const ParamLayout& layout,
                                                     const ShardsConfig& config, int ranks) {
    const Slicing slices = shards_slicing(layout, config, ranks);
    std::vector<std::vector<TensorPiece>> pieces;
    for (int r = 0; r < ranks; r++) {
        pieces.emplace_back();
        for (const char* group : {"weights", "m", "v"})
            for (const TensorPart& p : tensor_parts(layout, owned_ranges(slices, r), false))
                pieces.back().push_back(
                    {group, p.tensor->name, Dtype::F32, p.tensor->shape, p.first, p.n, nullptr});
    }
    return pieces;
}

CheckpointMeta checkpoint_meta(const std::string& run_id, const RunState& state, const Options& opt,
                               const ModelConfig& cfg, const Tokenizer* tokenizer,
                               const World& world, const std::string& data) {
    CheckpointMeta meta;
    meta.run_id = run_id;
    meta.step = state.step;
    meta.tokens = state.samples * opt.seq_len;
    meta.model = model_config_to_json(cfg);
    meta.train = run_state_to_json(state);
    meta.train["seq_len"] = opt.seq_len;
    meta.train["seed"] = opt.seed;
    if (opt.command != Command::Import) {
        for (const auto& [name, value] : curve_options(opt)) meta.train["options"][name] = value;
        if (!data.empty()) meta.train["data"] = data;
    }
    if (tokenizer) meta.train["tokenizer"] = tokenizer->json();
    meta.layout = {{"ranks", world.size}, {"zero", opt.zero}};
    return meta;
}

// Both as JSON, which leaves out what a model has not: a key of either must stand in the other.
static void check_same_model(const ModelConfig& there, const ModelConfig& here,
                             const std::string& path) {
    const nlohmann::json theirs = model_config_to_json(there), mine = model_config_to_json(here);
    nlohmann::json keys = theirs;
    keys.update(mine);
    const auto text = [](const nlohmann::json& model, const std::string& key) {
        return str(key, " = ", model.contains(key) ? model[key].dump() : "nothing");
    };
    for (const auto& [key, value] : keys.items())
        CHECK(theirs.contains(key) && mine.contains(key) && theirs[key] == mine[key], Exit::Usage,
              path + " is a checkpoint of another model", text(theirs, key),
              str(text(mine, key), " (--model ", here.name, ")"),
              "--model and --vocab-size as in that run, another --out, or --resume never");
}

int64_t run_number(const OpenCheckpoint& from, const char* key, int64_t fallback) {
    const nlohmann::json& train = from.manifest.meta.train;
    if (!train.contains(key)) return fallback;
    CHECK(json_is_integer(train[key]), Exit::Damaged, str("field '", key, "' of ", from.path),
          train[key].dump().substr(0, 60), "a whole number");
    return train[key].get<int64_t>();
}

std::string run_data(const TokenFiles& data) {
    Digest digest;
    for (const TokenShard& s : data.shards()) {
        const std::string line = str(s.tokens(), " ", s.fingerprint(), "\n");
        digest.update(line.data(), line.size());
    }
    const int64_t shards = int64_t(data.shards().size()), tokens = data.tokens();
    return str(counted(shards, "shard"), ", ", grouped(tokens), " ", plural(tokens, "token"),
               ", digest ", digest.hex());
}

// What the checkpoint says of the options that decide the curve, by name. Those before such a note
// have these two.
static std::map<std::string, std::string> options_then(const OpenCheckpoint& from) {
    std::map<std::string, std::string> then;
    for (const auto& [key, name] :
         {std::pair("micro_batch", "micro-batch"), {"batch_tokens", "batch-tokens"}})
        if (const int64_t n = run_number(from, key, 0)) then[name] = str(n);
    const nlohmann::json& train = from.manifest.meta.train;
    try {
        if (train.contains("options")) train["options"].get_to(then);
        if (train.contains("data")) train["data"].get_to(then["data"]);
    } catch (const nlohmann::json::exception& e) {
        fail(Exit::Damaged, str("the options of the run in ", from.path), e.what(), "texts");
    }
    return then;
}

std::string changed_options(const OpenCheckpoint& from, const Options& opt,
                            const std::string& data) {
    const auto then = options_then(from);
    auto now = curve_options(opt);
    now.emplace_back("data", data);
    std::string changed;
    for (const auto& [name, value] : now)
        if (const auto it = then.find(name); it != then.end() && it->second != value)
            changed += str(changed.empty() ? "" : ", ", "--", name, " ", it->second, " -> ", value);
    return changed;
}

RunState checkpoint_state(const OpenCheckpoint& from, const Options& opt, const ModelConfig& cfg) {
    const CheckpointMeta& meta = from.manifest.meta;
    check_same_model(model_config_from_json(meta.model, from.path), cfg, from.path);
    const int64_t seq_len = run_number(from, "seq_len", 0);
    CHECK(seq_len == opt.seq_len, Exit::Usage,
          from.path + " counts its samples in another --seq-len", str(seq_len), str(opt.seq_len),
          str("--seq-len ", seq_len, ", or start anew with --model ", from.path));
    const nlohmann::json mine = opt.seed, seed = meta.train.value("seed", mine);
    CHECK(seed == mine, Exit::Usage, from.path + " orders its samples by another --seed",
          seed.dump(), mine.dump(),
          str("--seed ", seed.dump(), ", or start anew with --model ", from.path));
    return run_state_from_json(meta.train);
}

template <class Elem, class Stream>
LoadedModel<Elem, Stream> model_load(const std::string& path, World& world,
                                     Memory<Stream>& memory) {
    ShardsConfig config;
    config.inference = true;
    const auto shards_make = [&](const ModelConfig& cfg) {
        return std::make_unique<Shards<Elem, Stream>>(param_layout(cfg), config, *world.dp, memory);
    };
    LoadedModel<Elem, Stream> m;
    if (model_file_is(path)) {
        const ModelFile file = model_file_open(path);
        check_alike(alike_line(path, file), world);
        m.cfg = file.cfg;
        m.checkpoint.path = path;
        m.checkpoint.manifest.meta.train = nlohmann::json::object();
        if (const auto tokenizer = model_file_tokenizer(path))
            m.checkpoint.manifest.meta.train["tokenizer"] = tokenizer->json();
        m.shards = shards_make(m.cfg);
        weights_fill(*m.shards, file.read);
    } else {
        m.checkpoint = checkpoint_open(path, *world.dp);
        m.cfg = model_config_from_json(m.checkpoint.manifest.meta.model, m.checkpoint.path);
        m.shards = shards_make(m.cfg);
        checkpoint_read(m.checkpoint, state_pieces(*m.shards, Groups::Weights, Pieces::Held),
                        *world.dp, Want::Some);
    }
    m.shards->state_from_host(0);
    return m;
}

template <class Elem, class Stream>
void weights_fill(Shards<Elem, Stream>& shards, const TensorSource& source) {
    for (const TensorSlice& s : shards.master_slices()) {
        // Padding rows lie behind the last element.
        const int64_t n = std::clamp<int64_t>(s.tensor->count() - s.first, 0, s.count);
        if (n > 0) source(*s.tensor, s.first, n, s.data);
        std::fill(s.data + n, s.data + s.count, 0.f);
    }
}

#define SAVES_FOR(Elem, Stream)                                                                 \
    template std::vector<TensorPiece> state_pieces(Shards<Elem, Stream>&, Groups, Pieces);      \
    template LoadedModel<Elem, Stream> model_load(const std::string&, World&, Memory<Stream>&); \
    template void weights_fill(Shards<Elem, Stream>&, const TensorSource&);
SAVES_FOR(float, CpuStream)
FOR_CUDA(SAVES_FOR(float, CudaStream) SAVES_FOR(bf16, CudaStream))

std::vector<TensorPiece> model_file_pieces(const ModelFile& file, Comm& comm) {
    std::vector<TensorPiece> pieces;
    int next = 0;
    for (const ParamBlock& b : file.layout.blocks)
        for (const ParamTensor& t : b.tensors) {
            if (next++ % comm.size() != comm.rank()) continue;
            TensorPiece piece{"weights", t.name, Dtype::F32, t.shape, 0, t.count()};
            piece.fill = [&file, &t](int64_t first, int64_t n, void* to) {
                file.read(t, first, n, static_cast<float*>(to));
            };
            pieces.push_back(std::move(piece));
        }
    return pieces;
}

static std::unique_ptr<Tokenizer> carried_tokenizer(const CheckpointMeta& meta,
                                                    const std::string& path) {
    const nlohmann::json& train = meta.train;
    if (!train.contains("tokenizer") || !train["tokenizer"].is_string()) return nullptr;
    return tokenizer_from_json(train["tokenizer"].get<std::string>(), path);
}

std::unique_ptr<Tokenizer> checkpoint_tokenizer(const OpenCheckpoint& checkpoint) {
    return carried_tokenizer(checkpoint.manifest.meta, checkpoint.path);
}

std::unique_ptr<Tokenizer> tokenizer_named(const std::string& spec) {
    std::error_code none;
    const std::filesystem::path path = spec;
    if (!std::filesystem::exists(path / MANIFEST_FILE, none) &&
        !std::filesystem::exists(path / "ckpt", none))
        return tokenizer_open(spec);
    auto tokenizer = carried_tokenizer(checkpoint_peek(spec), spec);
    CHECK(tokenizer, Exit::Usage, "the checkpoint carries no tokenizer", spec);
    return tokenizer;
}

std::unique_ptr<Tokenizer> model_tokenizer(const Options& opt, const OpenCheckpoint& checkpoint,
                                           const ModelConfig& cfg) {
    auto tokenizer =
        opt.tokenizer.empty() ? checkpoint_tokenizer(checkpoint) : tokenizer_named(opt.tokenizer);
    CHECK(tokenizer, Exit::Usage, "the model carries no tokenizer", checkpoint.path, "",
          "--tokenizer PATH");
    check_tokenizer_fits(*tokenizer, cfg);
    return tokenizer;
}

void check_tokenizer_fits(const Tokenizer& tokenizer, const ModelConfig& cfg) {
    CHECK(tokenizer.vocab_size() <= cfg.V, Exit::Usage,
          "the tokenizer has more tokens than the model", str(tokenizer.vocab_size()),
          str("at most ", cfg.V),
          "the tokenizer that the model was trained with, or a new model with --vocab-size");
}
