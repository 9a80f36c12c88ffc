// llmc/train/saves.h: between a run and its checkpoints: which tensors, which facts, what resumes.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "llmc/io/checkpoint.h"
#include "llmc/io/tokenizer.h"
#include "llmc/io/tokens.h"
#include "llmc/model/parameters.h"
#include "llmc/parallel/shards.h"
#include "llmc/parallel/world.h"
#include "llmc/train/model_file.h"
#include "llmc/train/options.h"
#include "llmc/train/run_state.h"

enum class Groups { Weights, All };  // All: weights and both moments

// This rank's pieces of the state: what it holds for checkpoint_read, what it owns for
// checkpoint_save.
template <class Elem, class Stream>
std::vector<TensorPiece> state_pieces(Shards<Elem, Stream>& shards, Groups groups, Pieces which);

// The same without memory behind it: what each rank of such a run would save, for the planner.
std::vector<std::vector<TensorPiece>> planned_pieces(const ParamLayout& layout,
                                                     const ShardsConfig& config, int ranks);

// The facts that go into the manifest; data: what run_data() says.
CheckpointMeta checkpoint_meta(const std::string& run_id, const RunState& state, const Options& opt,
                               const ModelConfig& cfg, const Tokenizer* tokenizer,
                               const World& world, const std::string& data = "");

// The data that a run counts its samples in: "3 shards, 33,009 tokens, digest ...". Not the names:
// data may be moved.
std::string run_data(const TokenFiles& data);

// What decides the curve and is not as it was when the checkpoint was saved: "--lr 0.003 -> 0.001,
// --steps 6 -> 8"; empty if nothing is, or the checkpoint does not say.
std::string changed_options(const OpenCheckpoint& from, const Options& opt,
                            const std::string& data);

// A whole number that the run has noted in its checkpoint; Damaged if it is none, the fallback if
// it is not there.
int64_t run_number(const OpenCheckpoint& from, const char* key, int64_t fallback);

// What a checkpoint that a run resumes from says; refuses one of another model, or whose samples
// are counted differently (--seq-len), naming both sides.
RunState checkpoint_state(const OpenCheckpoint& from, const Options& opt, const ModelConfig& cfg);

// A model for generate and eval: weights alone, of a checkpoint or of another program's model file.
template <class Elem, class Stream>
struct LoadedModel {
    ModelConfig cfg;
    OpenCheckpoint checkpoint;  // of a model file: its path, at step 0, with its tokenizer
    std::unique_ptr<Shards<Elem, Stream>> shards;
};
template <class Elem, class Stream>
LoadedModel<Elem, Stream> model_load(const std::string& path, World& world, Memory<Stream>& memory);

// What this rank holds of the weights, from a model file.
template <class Elem, class Stream>
void weights_fill(Shards<Elem, Stream>& shards, const TensorSource& source);

// Every tensor of a model file as a piece that is read while it is saved; dealt out over the ranks.
std::vector<TensorPiece> model_file_pieces(const ModelFile& file, Comm& comm);

// --tokenizer: what tokenizer_open takes, or a checkpoint or OUT directory for the one inside.
std::unique_ptr<Tokenizer> tokenizer_named(const std::string& spec);
// The tokenizer that a checkpoint carries, or null.
std::unique_ptr<Tokenizer> checkpoint_tokenizer(const OpenCheckpoint& checkpoint);
// --tokenizer, else the one inside the checkpoint; Usage error when there is neither, or when it
// does not fit the model.
std::unique_ptr<Tokenizer> model_tokenizer(const Options& opt, const OpenCheckpoint& checkpoint,
                                           const ModelConfig& cfg);
// Every id needs a row of the embedding: Usage error otherwise. A model may have rows to spare.
void check_tokenizer_fits(const Tokenizer& tokenizer, const ModelConfig& cfg);
