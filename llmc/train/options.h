// llmc/train/options.h: what the user asked for, checked, before anything is allocated.
//
// One struct; one row an option in options.cpp (name, field, check, help), from which the parser,
// the config file, --help and the messages are all made. Default values stand here.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/core/dtype.h"
#include "llmc/model/activations.h"  // Recompute
#include "llmc/parallel/shards.h"    // Reduction

enum class Command {
    Train,
    Plan,
    Tokenize,
    TrainBpe,
    Generate,
    Eval,
    Import,
    Export,
    Verify,
    SelftestComm
};
enum class Device { Auto, Cpu, Cuda };
enum class Rounding { Nearest, Stochastic };
enum class Overlap { On, Off };
enum class AttentionBy { Own, Cudnn };
enum class AsyncSaves { Off, On };
enum class ExportFormat { Llmc, Hf };
enum class Schedule { Cosine, Linear, Constant, Wsd };
// What `eval` measures: the loss on token shards, or answers to the questions of a test set.
enum class EvalTask { Loss, HellaSwag, HellaSwagHarness, Lambada, Mmlu, Arc, WinoGrande };

// Each field is the option of the same name, with dashes for underscores. A value that means
// "to be worked out" is named in its comment; options_derive() replaces it.
struct Options {
    Command command = Command::Train;
    bool answered = false;           // --help or --version: all is said
    std::string path;                // verify PATH, export CKPT, import SRC
    std::vector<std::string> files;  // tokenize FILE..., train-bpe FILE...

    // model and data
    std::string model = "gpt2:124M";
    int vocab_size = 0;                       // 0: the model's own
    std::vector<std::string> data, val_data;  // globs of token shards
    std::string tokenizer;                    // empty: the checkpoint's, or none

    // batch and length
    int steps = 1000;
    int micro_batch = 4;
    int seq_len = 0;           // 0: kSeqLen, or the model's maximum if that is less
    int64_t batch_tokens = 0;  // 0: one micro-batch on each rank

    // optimizer: AdamW with decoupled decay
    double lr = 6e-4;
    int warmup_steps = -1;  // -1: kWarmupSteps, or a tenth of the steps if that is less
    Schedule schedule = Schedule::Cosine;
    double min_lr_frac = 0.1;
    double weight_decay = 0.1;
    double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
    double grad_clip = 1.0;  // 0: no clipping

    // what stops a bad step
    double loss_spike_z = 0, norm_spike_z = 0;  // 0: off
    int max_skipped = 10;

    // machine
    uint64_t seed = 42;
    Device device = Device::Auto;
    Dtype dtype = Dtype::F32;
    Rounding rounding = Rounding::Nearest;
    AttentionBy attention = AttentionBy::Own;
    int threads = 0;  // 0: all cores given to the process
    Recompute recompute = Recompute::None;

    // layout over ranks
    int zero = 0;
    double bucket_mb = 25;
    Overlap overlap = Overlap::On;
    Reduction reduction = Reduction::Canonical;
    Wire wire = Wire::Fp32;
    int tp = 1, pp = 1;
    int ranks = 1;  // given for plan only; else how many there are, set by options_derive()
    double start_limit = 600, step_limit = 300, save_limit = 1800;  // seconds without progress

    // files, validation, samples
    std::string out = "out";
    double lock_wait = 0;  // seconds
    int save_every = 250;  // 0: only at the end
    AsyncSaves async_save = AsyncSaves::Off;
    int keep = 3;
    std::string trace;            // empty: no timeline
    std::string resume = "auto";  // auto | never | a checkpoint
    int val_every = 100;          // 0: never
    int val_batches = 20;
    int sample_every = 0;  // 0: never
    int sample_tokens = 64;
    std::string prompt;

    // eval
    EvalTask task = EvalTask::Loss;
    std::vector<std::string> file;  // test sets
    int shots = -1;                 // examples before a question; -1: those that lie beside the set

    // tokenize, train-bpe, generate, export
    double val_fraction = 0.05;
    std::string separator = "<|endoftext|>";  // of documents; empty: none
    int64_t shard_tokens = 100'000'000;
    int tokens = 256;
    double temperature = 1.0;
    int top_k = 0;
    double top_p = 1.0;
    ExportFormat format = ExportFormat::Llmc;
    int max_mb = 64;  // selftest-comm

    // Worked out by options_derive(), never set by the user.
    int micro_batches = 0;   // of one step, over all ranks
    int grad_accum = 0;      // micro-batches a rank adds up for one step, at most
    std::string device_why;  // by device_setup()
};

constexpr int kSeqLen = 1024, kWarmupSteps = 700;

// Parses the command line and the --config file and checks every value by itself and against the
// others. Throws Error(Exit::Usage). --help and --version print to stdout,
// and nothing else is looked at.
Options options_parse(int argc, const char* const* argv);

// What must be known before ranks have met and one of them can say what is wrong with the options.
struct OptionsGlance {
    bool trains = false;     // the command is train: signals are for a save
    double start_limit = 0;  // what follows --start-limit, or its default
};
OptionsGlance options_glance(int argc, const char* const* argv);

// Fills in what depends on the model and on the number of data-parallel ranks:
//   batch_tokens = micro_batches * micro_batch * seq_len,  grad_accum = ceil(micro_batches / ranks)
// and refuses, with the equation and the nearest valid values, what does not divide, and more ranks
// than micro-batches.
void options_derive(Options& opt, int model_max_seq_len, int ranks);
// "524,288 tokens = 4 x 16 x 1024 on 8 ranks", or what becomes of micro-batches that the ranks do
// not divide.
std::string step_text(const Options& opt);

const char* command_name(Command c);
std::string options_help(Command c);
