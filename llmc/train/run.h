// llmc/train/run.h: what surrounds the training loop: the output directory and its lock, the data,
// where the run starts from. Saving: saver.h.
#pragma once
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "llmc/io/checkpoint.h"
#include "llmc/io/data_info.h"
#include "llmc/io/run_lock.h"
#include "llmc/io/tokenizer.h"
#include "llmc/io/tokens.h"
#include "llmc/model/decode.h"
#include "llmc/model/gpt.h"
#include "llmc/parallel/world.h"
#include "llmc/train/log.h"
#include "llmc/train/model_file.h"
#include "llmc/train/options.h"
#include "llmc/train/run_state.h"

struct Run {
    Options opt;  // derived
    ModelConfig cfg;
    TokenFiles train;
    std::optional<TokenFiles> val;
    std::string data;                      // run_data(train)
    std::unique_ptr<Tokenizer> tokenizer;  // null: unknown; then nothing is sampled
    std::string id;
    std::unique_ptr<RunLock> lock;
    std::optional<OpenCheckpoint> start;  // resume from it ...
    bool weights_only = false;            // ... or take only its weights (--model CHECKPOINT)
    std::optional<ModelFile> file;        // ... or another program's (--model FOLDER or FILE)
    int64_t saved_step = -1;              // the newest step that is on disk (saver.h)
    Saves saves;
    double agreed = 0;  // seconds in which the last step waited for the number of its targets
};

// The model that the options name: a checkpoint's or a model file's, or a preset or config with
// --vocab-size, else the vocabulary that the data was tokenized with. The tokenizer: --tokenizer,
// else the one that lies beside the data, which must be the model's if that has one, else the
// model's, else null.
struct NamedModel {
    ModelConfig cfg;
    std::optional<OpenCheckpoint> checkpoint;  // weights of a checkpoint ...
    std::optional<ModelFile> file;             // ... or of a model file
    std::unique_ptr<Tokenizer> tokenizer;
};
NamedModel run_model(const Options& opt, World& world);

// Checks everything that can be checked before memory is taken: model, data, batch, output
// directory, what to resume from. Takes the lock of --out.
Run run_open(const Options& opt, World& world);

// The state the run starts from: the checkpoint's, or fresh weights by (seed, name, index).
template <class Elem, class Stream>
RunState run_start(Run& run, Shards<Elem, Stream>& shards, World& world);

// Forward and backward of all micro-batches of the step; returns the number of valid targets of the
// global batch.
template <class Elem, class Stream>
int64_t run_micro_batches(Run& run, const RunState& state, Gpt<Elem, Stream>& gpt,
                          Shards<Elem, Stream>& shards, World& world);

// The mean loss over so many targets, after Shards::clip: the same bits on every rank. Waits for
// the device.
template <class Elem, class Stream>
float run_loss(Gpt<Elem, Stream>& gpt, int64_t targets);

// Mean loss over the first --val-batches micro-batches of the validation data, dealt out to the
// ranks: the same bits for any number of them.
template <class Elem, class Stream>
float run_validate(Run& run, Gpt<Elem, Stream>& gpt, Shards<Elem, Stream>& shards, World& world);

class StepTimer {
  public:
    double ms() const {
        return std::chrono::duration<double, std::milli>(Clock::now() - begin_).count();
    }

  private:
    using Clock = std::chrono::steady_clock;
    Clock::time_point begin_ = Clock::now();
};

// One line of a step, and an event if it was skipped.
void run_report(const Run& run, const RunState& state, const Verdict& verdict, float loss,
                float norm, float lr, const StepTimer& timer, const CommQueue::Times& comm,
                Log& log);
void run_stopped(const RunState& state, int signal, Log& log);

// The text that is sampled during training: --sample-tokens after --prompt, the same randomness at
// every step, so that samples of different steps differ by what was learnt.
template <class Elem, class Stream>
class Samples {
  public:
    Samples(Run& run, Memory<Stream>& memory);
    std::string text(Shards<Elem, Stream>& shards, World& world);

  private:
    Run& run_;
    std::unique_ptr<Decoder<Elem, Stream>> decoder_;  // null without --sample-every
};

ShardsConfig shards_config(const Options& opt);  // of derived options
AdamW adamw(const Options& opt, float lr, int64_t t);

// The log of this run, after its table has been printed: model, data, layout, memory, device.
std::unique_ptr<Log> run_log(const Run& run, const RunState& state, const MemoryPlan& plan,
                             const World& world);

// The first signal that any rank has received, agreed by all at a step boundary; 0 for none.
int signal_agreed(World& world);

// True every `every` steps, never for 0.
inline bool due(int64_t every, int64_t step) {
    return every > 0 && step % every == 0;
}
