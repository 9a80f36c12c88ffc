// llmc/train/options.cpp: every option, one row each, and the checks of options against each other.
#include "llmc/train/options.h"

#include <algorithm>
#include <charconv>
#include <climits>
#include <cmath>
#include <functional>
#include <type_traits>

#include "llmc/core/check.h"
#include "llmc/core/nearest.h"
#include "llmc/core/plural.h"
#include "llmc/parallel/slicing.h"
#include "llmc/train/options_table.h"
#include "llmc/train/progress.h"  // grouped

namespace {

// ---- what a good number is: in words for messages, and as a test
struct Check {
    std::string expected;
    std::function<bool(double)> ok;
};
std::string plain(double x) {
    char text[32];
    return std::string(text, std::to_chars(text, text + sizeof text, x).ptr);
}
Check at_least(double low) {
    return {plain(low) + " or more", [=](double x) { return x >= low; }};
}
Check above(double low) {
    return {"above " + plain(low), [=](double x) { return x > low; }};
}
Check between(double low, double high) {
    return {plain(low) + " to " + plain(high), [=](double x) { return x >= low && x <= high; }};
}
// 0 <= x < 1: a decay or a fraction that must leave something.
Check below_one() {
    return {"at least 0 and below 1", [](double x) { return x >= 0 && x < 1; }};
}
Check only_one(const std::string& feature) {
    return {"1: this version has no " + feature, [](double x) { return x == 1; }};
}

template <class Number>
Number number_parse(const std::string& where, const std::string& text, const Check& check) {
    Number x{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), x);
    const bool whole_text = error == std::errc() && end == text.data() + text.size();
    const char* kind = std::is_integral_v<Number> ? "a whole number, " : "a number, ";
    const std::string limit = error == std::errc::result_out_of_range
                                  ? str(" (largest: ", std::numeric_limits<Number>::max(), ")")
                                  : "";
    CHECK(whole_text && std::isfinite(double(x)) && check.ok(double(x)), Exit::Usage,
          "bad value for " + where, "'" + text + "'", kind + check.expected + limit);
    return x;
}

// ---- one row for each type of field
template <class Number>
requires std::is_arithmetic_v<Number> OptionRow row(const char* name, Number Options::*field,
                                                    Check check, const char* group,
                                                    unsigned commands, const char* help,
                                                    const char* fallback = "") {
    OptionRow r{name, std::is_integral_v<Number> ? "N" : "X", group, commands, help, fallback};
    r.set = [=](Options& opt, const std::string& where, const std::vector<std::string>& texts) {
        opt.*field = number_parse<Number>(where, texts.back(), check);
    };
    r.get = [=](const Options& opt) {
        if constexpr (std::is_integral_v<Number>)
            return std::to_string(opt.*field);
        else
            return plain(opt.*field);
    };
    return r;
}

// A choice: the names in the order of the enumerators.
template <class Enum>
requires std::is_enum_v<Enum> OptionRow row(const char* name, Enum Options::*field,
                                            std::vector<std::string> choices, const char* group,
                                            unsigned commands, const char* help,
                                            const char* fallback = "") {
    std::string list;
    for (const std::string& choice : choices) list += (list.empty() ? "" : "|") + choice;
    OptionRow r{name, list, group, commands, help, fallback};
    r.set = [=](Options& opt, const std::string& where, const std::vector<std::string>& texts) {
        const auto found = std::find(choices.begin(), choices.end(), texts.back());
        CHECK(found != choices.end(), Exit::Usage, "bad value for " + where,
              "'" + texts.back() + "'", list, did_you_mean(texts.back(), choices, where + " "));
        opt.*field = Enum(found - choices.begin());
    };
    r.get = [=](const Options& opt) { return choices[size_t(opt.*field)]; };
    return r;
}

OptionRow row(const char* name, std::string Options::*field, const char* value, const char* group,
              unsigned commands, const char* help, const char* fallback = "") {
    OptionRow r{name, value, group, commands, help, fallback};
    r.set = [=](Options& opt, const std::string&, const std::vector<std::string>& texts) {
        opt.*field = texts.back();
    };
    r.get = [=](const Options& opt) { return opt.*field; };
    return r;
}

OptionRow row(const char* name, std::vector<std::string> Options::*field, const char* value,
              const char* group, unsigned commands, const char* help, const char* fallback = "") {
    OptionRow r{name, value, group, commands, help, fallback};
    r.many = true;
    r.set = [=](Options& opt, const std::string&, const std::vector<std::string>& texts) {
        opt.*field = texts;
    };
    r.get = [](const Options&) { return std::string(); };
    return r;
}

// `--name` alone means `--name meaning`.
OptionRow bare(OptionRow r, const char* meaning) {
    r.bare = meaning, r.value = "[" + r.value + "]";
    return r;
}

OptionRow required(OptionRow r) {
    r.required = true;
    return r;
}

// It decides the curve: a run that goes on with another value is told so.
OptionRow curve(OptionRow r) {
    r.curve = true;
    return r;
}

constexpr unsigned Train = on(Command::Train), Plan = on(Command::Plan), Run = Train | Plan,
                   Tokenize = on(Command::Tokenize), Bpe = on(Command::TrainBpe),
                   Generate = on(Command::Generate), Eval = on(Command::Eval),
                   Import = on(Command::Import), Export = on(Command::Export),
                   Verify = on(Command::Verify), Use = Generate | Eval;

// clang-format off
const char *kModel = "Model and data", *kBatch = "Batch and length", *kAdamW = "Optimizer",
           *kPolicy = "Bad steps", *kMachine = "Machine", *kLayout = "Many ranks",
           *kFiles = "Files", *kWatch = "Validation and samples", *kText = "Text";

std::vector<OptionRow> rows() {
    using O = Options;
    return {
    row("FILE...", &O::files, "", kModel, Tokenize | Bpe, "text files, UTF-8 or any bytes"),
    row("PATH", &O::path, "", kModel, Verify, "a checkpoint folder, OUT/ckpt/step-N, or OUT for its newest"),
    row("CKPT", &O::path, "", kModel, Export, "a checkpoint folder, OUT/ckpt/step-N, or OUT for its newest"),
    row("SRC", &O::path, "", kModel, Import, "a model of another program: llm.c's gpt2_124M.bin, llama2.c's stories15M.bin, a Hugging Face folder"),

    row("model", &O::model, "NAME|PATH", kModel, Run, "a preset (gpt2:124M 350M 774M 1558M, gpt2:dN of depth N, llama:3.2-1B, qwen3:0.6B, ...), a config.json, a checkpoint, a Hugging Face folder, llm.c's or llama2.c's .bin: its weights too"),
    required(row("model", &O::model, "PATH", kModel, Use, "a checkpoint folder, OUT/ckpt/step-N, OUT for its newest, or another program's model as `import` takes it")),
    row("vocab-size", &O::vocab_size, at_least(2), kModel, Run, "number of tokens", "the model's, or the tokenizer's"),
    required(row("vocab-size", &O::vocab_size, at_least(257), kModel, Bpe, "tokens of the new vocabulary: 256 bytes, <|endoftext|>, and merges")),
    row("data", &O::data, "GLOB...", kModel, Run, "token shards to train on (written by `train_gpt tokenize`, or llm.c's); an epoch takes every sample once, in an order by --seed, and a step may span two epochs"),
    row("val-data", &O::val_data, "GLOB...", kModel, Run, "token shards for validation", "no validation"),
    row("task", &O::task, {"loss", "hellaswag", "hellaswag-harness", "lambada", "mmlu", "arc", "winogrande"}, kModel, Eval, "what is measured: the loss on --data, or answers to the questions of --file (texts and scores: llmc/train/eval_questions.h)"),
    row("data", &O::data, "GLOB...", kModel, Eval, "token shards to measure the loss on", "needed for --task loss"),
    row("file", &O::file, "FILE...", kModel, Eval, "test sets, .jsonl or .csv as published, or llm.c's hellaswag_val.bin", "needed for the other tasks"),
    row("shots", &O::shots, at_least(0), kModel, Eval, "mmlu: examples with answers before each question, out of SUBJECT_dev.csv", "5 if SUBJECT_dev.csv lies beside, else 0"),
    row("tokenizer", &O::tokenizer, "byte|PATH", kModel, Run | Use | Import, "turns text into tokens and back: byte, a tokenizer.json, sentencepiece's .model, llama2.c's or llm.c's tokenizer.bin, encoder.json + vocab.bpe, vocab.json + merges.txt, a folder with one of them, or a checkpoint", "the data's, or the model's"),
    required(row("tokenizer", &O::tokenizer, "byte|PATH", kModel, Tokenize, "byte (256 + end of text), a tokenizer.json, sentencepiece's .model, llama2.c's or llm.c's tokenizer.bin, encoder.json + vocab.bpe, vocab.json + merges.txt, a folder with one of them, or a checkpoint")),

    curve(row("steps", &O::steps, at_least(1), kBatch, Run, "optimizer steps of the whole run")),
    curve(row("micro-batch", &O::micro_batch, at_least(1), kBatch, Run | Eval, "sequences at once on one rank; memory grows with it")),
    curve(row("seq-len", &O::seq_len, at_least(1), kBatch, Run | Eval, "tokens in a sequence", "1024, or the model's maximum if less")),
    curve(row("batch-tokens", &O::batch_tokens, at_least(1), kBatch, Run, "tokens of one step over all ranks, a multiple of micro-batch x seq-len", "one micro-batch a rank")),

    curve(row("lr", &O::lr, above(0), kAdamW, Run, "peak learning rate")),
    curve(row("warmup-steps", &O::warmup_steps, at_least(0), kAdamW, Run, "steps of linear rise from 0 to the peak", "700, or a tenth of the steps if less")),
    curve(row("schedule", &O::schedule, {"cosine", "linear", "constant", "wsd"}, kAdamW, Run, "fall of the learning rate after the warm-up (equations: llmc/train/schedule.h)")),
    curve(row("min-lr-frac", &O::min_lr_frac, between(0, 1), kAdamW, Run, "last learning rate as a fraction of the peak")),
    curve(row("weight-decay", &O::weight_decay, at_least(0), kAdamW, Run, "decoupled decay, on matrices only")),
    curve(row("beta1", &O::beta1, below_one(), kAdamW, Run, "decay of the mean of gradients")),
    curve(row("beta2", &O::beta2, below_one(), kAdamW, Run, "decay of the mean of squares")),
    curve(row("eps", &O::eps, above(0), kAdamW, Run, "added to the root of the mean of squares")),
    curve(row("grad-clip", &O::grad_clip, at_least(0), kAdamW, Run, "largest norm of the gradient; 0: no clipping")),

    curve(row("loss-spike-z", &O::loss_spike_z, at_least(0), kPolicy, Run, "skip a step whose loss lies this many robust deviations above the recent median; 0: off")),
    curve(row("norm-spike-z", &O::norm_spike_z, at_least(0), kPolicy, Run, "the same for the gradient norm; 0: off")),
    row("max-skipped", &O::max_skipped, at_least(1), kPolicy, Run, "stop with exit code 5 after this many skipped steps in a row"),

    curve(row("seed", &O::seed, at_least(0), kMachine, Run | Generate, "the only source of randomness: weights, order of data, samples")),
    curve(row("device", &O::device, {"auto", "cpu", "cuda"}, kMachine, Run | Use | on(Command::SelftestComm), "auto: a GPU if the build and the machine have one")),
    curve(row("dtype", &O::dtype, {"fp32", "bf16"}, kMachine, Run | Use | Export, "numbers of weights and activations, where bf16 needs a GPU; of an exported model")),
    curve(row("rounding", &O::rounding, {"nearest", "stochastic"}, kMachine, Run, "how bf16 weights are rounded from their fp32 masters; stochastic: up or down by chance, right on average")),
    curve(row("attention", &O::attention, {"own", "cudnn"}, kMachine, Run | Eval, "whose attention kernels run in bf16 on a GPU: ours, or NVIDIA's cuDNN 9, loaded only if asked for")),
    row("threads", &O::threads, at_least(1), kMachine, Run | Use | Tokenize, "CPU threads", "all cores of the process"),
    row("recompute", &O::recompute, {"none", "selective", "block"}, kMachine, Run, "compute activations again in the backward pass: less memory, same bits"),

    row("zero", &O::zero, between(0, 3), kLayout, Run, "ZeRO stage: 0 nothing, 1 optimizer state, 2 and gradients, 3 and parameters cut over ranks"),
    row("bucket-mb", &O::bucket_mb, above(0), kLayout, Run, "megabytes of gradients sent at once, where there is more than one rank"),
    row("overlap", &O::overlap, {"on", "off"}, kLayout, Run, "on: gradients travel while backward goes on; same bits"),
    curve(row("reduction", &O::reduction, {"canonical", "fast"}, kLayout, Run, "canonical: the same bits for any number of ranks")),
    curve(row("wire", &O::wire, {"fp32", "bf16", "fp16"}, kLayout, Run, "gradients as they are sent, with --reduction fast; 16 bits are half the bytes, added up in fp32")),
    row("tp", &O::tp, only_one("tensor parallelism"), kLayout, Run, "ranks that share each matrix"),
    row("pp", &O::pp, only_one("pipeline parallelism"), kLayout, Run, "ranks that share the layers"),
    row("ranks", &O::ranks, between(1, 99999), kLayout, Plan, "data-parallel ranks to plan for"),

    row("start-limit", &O::start_limit, above(0), kLayout, ~0u, "seconds without progress at the start that count as a hang: exit code 6"),
    row("step-limit", &O::step_limit, above(0), kLayout, Run, "the same within a step, a validation or a sample; a layer done is progress"),
    row("save-limit", &O::save_limit, above(0), kLayout, Run, "the same within a save"),
    row("step-limit", &O::step_limit, above(0), kLayout, Use | on(Command::SelftestComm), "seconds without progress that count as a hang of several ranks: exit code 6; a layer done is progress"),
    row("save-limit", &O::save_limit, above(0), kLayout, Import | Export | Verify | Tokenize | Bpe, "seconds without progress that count as a hang of several ranks: exit code 6; a piece of a file is progress"),

    row("out", &O::out, "DIR", kFiles, Run, "log.jsonl and checkpoints go here; one run at a time"),
    row("lock-wait", &O::lock_wait, at_least(0), kFiles, Run, "seconds to wait for another run in --out to end; the lock of a machine that died may outlive it by minutes"),
    required(row("out", &O::out, "PREFIX", kFiles, Tokenize, "writes PREFIX_train_000000.bin, ..., PREFIX_val_000000.bin, ...")),
    required(row("out", &O::out, "PATH", kFiles, Bpe, "the vocabulary, a tokenizer.json")),
    required(row("out", &O::out, "CKPT", kFiles, Import, "a new directory: the model becomes its checkpoint of step 0")),
    required(row("out", &O::out, "PATH", kFiles, Export, "llmc: the file to write; hf: the folder, new or empty")),
    required(row("format", &O::format, {"llmc", "hf"}, kFiles, Export, "llmc: the .bin model file of llm.c; hf: a Hugging Face folder")),
    row("save-every", &O::save_every, at_least(0), kFiles, Run, "steps between checkpoints; 0: only at the end"),
    bare(row("async-save", &O::async_save, {"off", "on"}, kFiles, Run, "write checkpoints while training goes on, from a copy of the state; the same files"), "on"),
    row("keep", &O::keep, at_least(2), kFiles, Run, "newest checkpoints kept; two at least, so that a valid one is always there"),
    row("trace", &O::trace, "FILE", kFiles, Run, "a timeline of all ranks, for https://ui.perfetto.dev; after an error each rank's own part, in FILE, FILE.1, ...", "none"),
    row("resume", &O::resume, "auto|never|PATH", kFiles, Run, "auto: go on from the newest valid checkpoint in --out; never: start over; PATH: go on from that checkpoint; what --out holds of later steps is renamed to .aside"),
    row("separator", &O::separator, "TEXT", kFiles, Tokenize | Bpe, "what stands between documents in a text file; '': a file is one document"),
    row("val-fraction", &O::val_fraction, below_one(), kFiles, Tokenize, "share of the text kept for validation"),
    row("shard-tokens", &O::shard_tokens, at_least(1), kFiles, Tokenize, "tokens in one file"),

    row("val-every", &O::val_every, at_least(0), kWatch, Run, "steps between validations; 0: never"),
    row("val-batches", &O::val_batches, at_least(1), kWatch, Run, "micro-batches of one validation, always the same ones"),
    row("sample-every", &O::sample_every, at_least(0), kWatch, Run, "steps between samples of text; 0: never"),
    row("sample-tokens", &O::sample_tokens, at_least(1), kWatch, Run, "length of a sample"),
    row("prompt", &O::prompt, "TEXT", kWatch, Run, "text that samples begin with", "end of text: a new document"),

    row("max-mb", &O::max_mb, at_least(0), kMachine, on(Command::SelftestComm), "largest message that is timed, in megabytes; 0: only check values"),

    row("prompt", &O::prompt, "TEXT", kText, Generate, "text to go on from", "end of text: a new document"),
    row("tokens", &O::tokens, at_least(1), kText, Generate, "tokens to write; stops before at an end of text"),
    row("temperature", &O::temperature, at_least(0), kText, Generate, "below 1: safer, above 1: wilder, 0: always the likeliest token"),
    row("top-k", &O::top_k, at_least(0), kText, Generate, "choose among the k likeliest tokens only; 0: all"),
    row("top-p", &O::top_p, {"above 0, at most 1", [](double p) { return p > 0 && p <= 1; }}, kText, Generate, "choose among the likeliest tokens that have this probability together"),
    };
}

std::vector<CommandRow> commands() {
    return {
    {Command::Train, "train", "[train] --data GLOB [OPTIONS]", "train a model, or go on with a run (the default command)",
     "  train_gpt --model gpt2:d6 --data 'data/x_train_*.bin' --val-data 'data/x_val_*.bin' --steps 500\n"
     "  train_gpt --config run.toml --lr 3e-4        # a file of `name = value` lines; options here win"},
    {Command::Plan, "plan", "plan [OPTIONS]", "print the memory that a training run would take; allocates nothing",
     "  train_gpt plan --model gpt2:1558M --micro-batch 4 --zero 1 --ranks 8"},
    {Command::Tokenize, "tokenize", "tokenize FILE... --tokenizer byte|PATH --out PREFIX [OPTIONS]", "turn text into token shards",
     "  train_gpt tokenize book.txt --tokenizer byte --out data/book"},
    {Command::TrainBpe, "train-bpe", "train-bpe FILE... --vocab-size N --out PATH", "learn a vocabulary (byte pair encoding) from text",
     "  train_gpt train-bpe book.txt --vocab-size 2048 --out data/bpe.json"},
    {Command::Generate, "generate", "generate --model PATH [OPTIONS]", "write text with a trained model; the text alone goes to stdout",
     "  train_gpt generate --model out --prompt 'It was' --tokens 200 --temperature 0.8 --top-k 50"},
    {Command::Eval, "eval", "eval --model PATH (--data GLOB | --task NAME --file FILE...) [OPTIONS]", "measure a trained model: its loss on token shards, or its answers to a test set",
     "  train_gpt eval --model out --data 'data/x_val_*.bin'\n"
     "  train_gpt eval --model out --task hellaswag --file data/eval/hellaswag_val.jsonl"},
    {Command::Import, "import", "import SRC --out CKPT [--tokenizer PATH]", "make a checkpoint of another program's model",
     "  train_gpt import Llama-3.2-1B --out llama      # a Hugging Face folder\n"
     "  train_gpt import gpt2_124M.bin --out imported"},
    {Command::Export, "export", "export CKPT --format llmc|hf --out PATH [--dtype bf16]", "write a checkpoint as another program's model",
     "  train_gpt export out --format hf --dtype bf16 --out folder\n"
     "  train_gpt export out/ckpt/step-0000001000 --format llmc --out model.bin"},
    {Command::Verify, "verify", "verify PATH", "check every byte of a checkpoint and print its `state` hash",
     "  train_gpt verify out                          # its newest\n"
     "  train_gpt verify out/ckpt/step-0000001000"},
    {Command::SelftestComm, "selftest-comm", "selftest-comm", "check the collectives between ranks here, and measure them",
     "  mpirun -np 2 train_gpt selftest-comm"},
    };
}
// clang-format on

}  // namespace

const std::vector<OptionRow>& option_table() {
    static const std::vector<OptionRow> table = rows();
    return table;
}
const std::vector<CommandRow>& command_table() {
    static const std::vector<CommandRow> table = commands();
    return table;
}

std::vector<std::pair<std::string, std::string>> curve_options(const Options& opt) {
    std::vector<std::pair<std::string, std::string>> values;
    for (const OptionRow& row : option_table()) {
        const bool idle = row.name == "steps" && opt.schedule == Schedule::Constant;
        if (row.curve && !idle && row.belongs_to(Command::Train))
            values.emplace_back(row.name, row.get(opt));
    }
    return values;
}

void options_check(const Options& opt) {
    if (opt.command == Command::Train) {
        CHECK(!opt.data.empty(), Exit::Usage, "nothing to train on: --data is missing", "", "",
              "`make quickstart` fetches a text, tokenizes it and trains on it; "
              "`train_gpt --help` explains the rest");
    }
    if (opt.command == Command::Eval) {
        const bool loss = opt.task == EvalTask::Loss;
        CHECK(loss ? !opt.data.empty() : !opt.file.empty(), Exit::Usage,
              loss ? "nothing to measure on: --data is missing"
                   : "nothing to measure on: --file is missing",
              "", "",
              "train_gpt eval --model PATH --data GLOB, or --task NAME --file FILE; "
              "data/README.md says where test sets come from");
        CHECK(loss ? opt.file.empty() : opt.data.empty(), Exit::Usage,
              loss ? "--file without its --task" : "--data is for --task loss alone");
        CHECK(opt.shots < 0 || opt.task == EvalTask::Mmlu, Exit::Usage,
              "--shots is for --task mmlu alone");
    }
    CHECK(opt.warmup_steps <= opt.steps, Exit::Usage, "--warmup-steps is longer than the run",
          str("--warmup-steps ", opt.warmup_steps, ", --steps ", opt.steps),
          "a warm-up of at most --steps");
    CHECK(opt.wire == Wire::Fp32 || opt.reduction == Reduction::Fast, Exit::Usage,
          "a 16-bit --wire rounds what a rank sends, so the bits depend on the number of ranks",
          "--reduction canonical, which promises that they do not", "", "--reduction fast");
}

void options_derive(Options& opt, int model_max_seq_len, int ranks) {
    if (opt.seq_len == 0) opt.seq_len = std::min(kSeqLen, model_max_seq_len);
    CHECK(opt.seq_len <= model_max_seq_len, Exit::Usage, "--seq-len is longer than the model's",
          str(opt.seq_len), str("at most ", model_max_seq_len), "a model with more positions");

    const int64_t rows = int64_t(opt.micro_batch) * opt.seq_len;  // token rows of one micro-batch
    CHECK(rows <= INT_MAX, Exit::Usage, "a micro-batch is too large",
          str("--micro-batch ", opt.micro_batch, " x --seq-len ", opt.seq_len),
          str("at most ", INT_MAX, " tokens"));
    opt.ranks = ranks;
    if (opt.batch_tokens == 0) opt.batch_tokens = rows * ranks;
    const int64_t least = rows * ranks;
    const int64_t below = opt.batch_tokens / rows * rows, over = std::max(below + rows, least);
    CHECK(opt.batch_tokens % rows == 0, Exit::Usage,
          "--batch-tokens does not divide into micro-batches",
          str("batch-tokens ", opt.batch_tokens, ", micro-batch ", opt.micro_batch, " x seq-len ",
              opt.seq_len, " = ", rows),
          "batch-tokens = micro-batches x micro-batch x seq-len",
          below >= least ? str("--batch-tokens ", below, " or ", over)
                         : str("--batch-tokens ", over));
    const int64_t micro_batches = opt.batch_tokens / rows;
    CHECK(micro_batches >= ranks, Exit::Usage, "more ranks than micro-batches in a step",
          str(ranks, " ranks, batch-tokens ", opt.batch_tokens, " = ", micro_batches, " x ",
              opt.micro_batch, " x ", opt.seq_len),
          "one micro-batch a rank or more",
          str("--batch-tokens ", least, ", or at most ", counted(micro_batches, "rank"),
              opt.micro_batch > 1 ? ", or a smaller --micro-batch" : ""));
    CHECK(micro_batches <= INT_MAX, Exit::Usage, "too many micro-batches in one step",
          str(micro_batches), str("at most ", INT_MAX), "a smaller --batch-tokens");
    opt.micro_batches = int(micro_batches);
    opt.grad_accum = int(micro_batches_each(micro_batches, ranks));

    if (opt.warmup_steps < 0) opt.warmup_steps = std::min(kWarmupSteps, opt.steps / 10);
}

std::string step_text(const Options& opt) {
    const std::string tokens = str(grouped(opt.batch_tokens), " tokens = "),
                      ranks = str(" on ", counted(opt.ranks, "rank"));
    const int64_t places = int64_t(opt.grad_accum) * opt.ranks, empty = places - opt.micro_batches;
    if (empty == 0)
        return str(tokens, opt.grad_accum, " x ", opt.micro_batch, " x ", opt.seq_len, ranks);
    return str(tokens, opt.micro_batches, " micro-batches of ", opt.micro_batch, " x ", opt.seq_len,
               ranks, ", ", opt.grad_accum, " or ", opt.grad_accum - 1,
               " each: ", 100 * empty / places, " % of the work is padding");
}
