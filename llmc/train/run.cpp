#include "llmc/train/run.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "llmc/core/check.h"
#include "llmc/core/hash.h"
#include "llmc/core/plural.h"
#include "llmc/parallel/timeline.h"
#include "llmc/train/alike.h"
#include "llmc/train/batch.h"
#include "llmc/train/device.h"
#include "llmc/train/evaluate.h"
#include "llmc/train/generate.h"
#include "llmc/train/planner.h"
#include "llmc/train/progress.h"
#include "llmc/train/saves.h"
#include "llmc/train/signals.h"

static bool is_directory(const std::string& path) {
    struct stat info {};
    return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

static std::string decimals(double x, int digits) {
    char text[64];
    std::snprintf(text, sizeof text, "%.*f", digits, x);
    return text;
}

static std::string fresh_run_id() {
    std::random_device random;
    char text[17];
    std::snprintf(text, sizeof text, "%08x%08x", random(), random());
    return text;
}

static std::optional<DataInfo> data_info(const Options& opt) {
    if (opt.data.empty()) return std::nullopt;
    return data_info_find(opt.data);
}

// A token for people: its bytes may be anything.
static std::string token_text(const Tokenizer& tokenizer, int id) {
    std::string text;
    for (const char c : tokenizer.token_bytes(id)) {
        char code[8];
        std::snprintf(code, sizeof code, c >= ' ' && c < 127 ? "%c" : "\\x%02x", uint8_t(c));
        text += code;
    }
    return text;
}

// Weights that know a tokenizer's ids are trained on data of the same ids.
static void check_same_ids(const Tokenizer& data, const Tokenizer& model, const std::string& name) {
    int id = 0;
    const int both = std::min(data.vocab_size(), model.vocab_size());
    while (id < both && data.token_bytes(id) == model.token_bytes(id)) id++;
    const auto text = [&](const Tokenizer& t) {
        return str(t.name(), " with ", t.vocab_size(), " tokens",
                   id < both ? str(", '", token_text(t, id), "' as token ", id) : "");
    };
    CHECK(id == both && data.vocab_size() == model.vocab_size(), Exit::Usage,
          "the data was made by another tokenizer than the model's", text(data), text(model),
          str("train_gpt tokenize FILE --tokenizer ", name));
}

NamedModel run_model(const Options& opt, World& world) {
    const std::optional<DataInfo> info = data_info(opt);
    NamedModel m;
    std::unique_ptr<Tokenizer> own;
    if (model_file_is(opt.model)) {
        m.file = model_file_open(opt.model);
        m.cfg = m.file->cfg;
        own = model_file_tokenizer(opt.model);
    } else if (is_directory(opt.model)) {
        m.checkpoint = checkpoint_open(opt.model, *world.dp);
        m.cfg = model_config_from_json(m.checkpoint->manifest.meta.model, m.checkpoint->path);
        own = checkpoint_tokenizer(*m.checkpoint);
    } else {
        m.cfg = model_config(opt.model, opt.vocab_size > 0 ? opt.vocab_size
                                        : info             ? info->vocab_size
                                                           : 0);
    }
    if (!opt.tokenizer.empty()) {
        m.tokenizer = tokenizer_named(opt.tokenizer);
    } else if (info) {
        m.tokenizer = tokenizer_open(info->tokenizer);
        if (own) check_same_ids(*m.tokenizer, *own, opt.model);
    } else {
        m.tokenizer = std::move(own);
    }
    if (m.tokenizer) check_tokenizer_fits(*m.tokenizer, m.cfg);
    return m;
}

// Where the run starts: resume from --out, from --resume PATH, from the weights of --model, or
// nowhere.
static void find_start(Run& run, NamedModel model, World& world) {
    const Options& opt = run.opt;
    if (opt.resume == "auto") {
        run.start = checkpoint_find(opt.out, *world.dp, opt.lock_wait);
    } else if (opt.resume == "never") {
        checkpoint_set_aside(opt.out, -1, *world.dp);
    } else {
        run.start = checkpoint_open(opt.resume, *world.dp);
        checkpoint_set_aside(opt.out, run.start->manifest.meta.step, *world.dp);
    }
    if (run.start) {
        run.id = run.start->manifest.meta.run_id;
        run.saves.resumed_from = run.start->path;
    } else {
        run.file = std::move(model.file);
        run.start = std::move(model.checkpoint);
        run.weights_only = run.start.has_value();
    }
}

// What was made of files: the model, the tokenizer, the data.
static void check_files_alike(const Run& run, const NamedModel& model, World& world) {
    std::string mine;
    const nlohmann::json config = model_config_to_json(run.cfg);
    for (const auto& [field, value] : config.items())
        mine += str("\nthe model's ", field, " = ", value.dump());
    if (model.file) mine += alike_line(run.opt.model, *model.file);
    if (run.tokenizer) {
        const std::string tokenizer = run.tokenizer->json();
        mine += str("\ntokenizer = ", run.tokenizer->name(), ", ",
                    digest_bytes(tokenizer.data(), tokenizer.size()));
    }
    mine += alike_lines(run.train);
    if (run.val) mine += alike_lines(*run.val);
    check_alike(mine, world);
}

Run run_open(const Options& opt, World& world) {
    Run run;
    run.opt = opt;
    NamedModel model = run_model(opt, world);
    run.cfg = model.cfg;
    run.tokenizer = std::move(model.tokenizer);
    options_derive(run.opt, run.cfg.max_T, world.size);

    // The data: every shard's header, size and ids are checked here.
    run.train = TokenFiles::open(opt.data, run.cfg.V, *world.dp);
    CHECK(run.train.samples(run.opt.seq_len) > 0, Exit::Usage,
          "the training data is shorter than one sample", counted(run.train.tokens(), "token"),
          str("at least --seq-len + 1 = ", run.opt.seq_len + 1, " in one shard"));
    CHECK(run.train.samples(run.opt.seq_len) >= world.size, Exit::Usage,
          "more ranks than samples in the training data",
          str(counted(run.train.samples(run.opt.seq_len), "sample"), " of ", run.opt.seq_len,
              " tokens"),
          str("at least one a rank: ", world.size),
          "fewer ranks, more data, or a smaller --seq-len");
    if (!opt.val_data.empty()) {
        run.val = TokenFiles::open(opt.val_data, run.cfg.V, *world.dp);
        CHECK(run.val->samples(run.opt.seq_len) > 0, Exit::Usage,
              "the validation data is shorter than one sample", counted(run.val->tokens(), "token"),
              str("at least --seq-len + 1 = ", run.opt.seq_len + 1, " in one shard"));
    }

    run.data = run_data(run.train);

    check_files_alike(run, model, world);
    run.id = fresh_run_id();
    run.lock = std::make_unique<RunLock>(opt.out, run.id, *world.dp, opt.lock_wait,
                                         [] { return signal_received() != 0; });
    run.saves.keep = opt.keep;
    find_start(run, std::move(model), world);
    return run;
}

static void warn_of_other_options(const Run& run, const World& world) {
    const std::string changed = changed_options(*run.start, run.opt, run.data);
    if (world.rank == 0 && !changed.empty())
        std::fprintf(stderr,
                     "warning: %s was trained with other options: %s; from here on the curve is "
                     "not that of the uninterrupted run\n",
                     run.start->path.c_str(), changed.c_str());
}

template <class Elem, class Stream>
RunState run_start(Run& run, Shards<Elem, Stream>& shards, World& world) {
    RunState state;
    if (run.start && !run.weights_only) {
        state = checkpoint_state(*run.start, run.opt, run.cfg);
        warn_of_other_options(run, world);
        checkpoint_read(*run.start, state_pieces(shards, Groups::All, Pieces::Held), *world.dp);
        run.saved_step = state.step;
    } else if (run.start) {
        checkpoint_read(*run.start, state_pieces(shards, Groups::Weights, Pieces::Held), *world.dp,
                        Want::Some);
    } else if (run.file) {
        weights_fill(shards, run.file->read);
    } else {
        for (TensorSlice& s : shards.master_slices())
            param_init(s.data, *s.tensor, s.first, s.count, run.opt.seed);
    }
    shards.state_from_host(state.updates);
    return state;
}

template <class Elem, class Stream>
int64_t run_micro_batches(Run& run, const RunState& state, Gpt<Elem, Stream>& gpt,
                          Shards<Elem, Stream>& shards, World& world) {
    const int B = run.opt.micro_batch, T = run.opt.seq_len;
    const Batch batch = batch_read(run.train, run.opt.seed, state.samples, run.opt.micro_batches, B,
                                   T, world.rank, world.size);
    int64_t valid = batch.valid;
    const double begin = comm_clock();
    world.dp->all_reduce(&valid, 1, ReduceOp::Sum, "valid targets");
    run.agreed = comm_clock() - begin;
    const float scale = valid ? 1.f / float(valid) : 0.f;

    gpt_loss_reset(gpt);
    for (int i = 0; i < batch.micro_batches; i++) {
        const TimelineScope scope("micro-batch", gpt.stream);
        gpt_forward_backward(gpt, shards, batch.tokens_of(i, int64_t(B) * T),
                             batch.targets_of(i, int64_t(B) * T), scale);
    }
    return valid;
}

template <class Elem, class Stream>
float run_loss(Gpt<Elem, Stream>& gpt, int64_t targets) {
    return float(fixed_sum_value(gpt_loss_sum(gpt)) / double(std::max<int64_t>(targets, 1)));
}

std::unique_ptr<Log> run_log(const Run& run, const RunState& state, const MemoryPlan& plan,
                             const World& world) {
    const Options& opt = run.opt;
    const ModelConfig& c = run.cfg;
    const int64_t samples = run.train.samples(opt.seq_len);
    const double epochs =
        double(opt.steps) * double(opt.batch_tokens / opt.seq_len) / double(samples);
    std::vector<std::pair<std::string, std::string>> rows = {
        {"model",
         str(c.name, ": ", grouped(param_layout(c).count), " parameters, ", counted(c.L, "layer"),
             ", width ", c.C, ", ", counted(c.H, "head"), ", vocabulary ", grouped(c.V))},
        {"data", str(grouped(run.train.tokens()), " tokens in ",
                     counted(int64_t(run.train.shards().size()), "shard"), ", ", grouped(samples),
                     " ", plural(samples, "sample"), " of ", opt.seq_len)},
        {"",
         run.val ? str(grouped(run.val->tokens()), " tokens of validation") : "no validation data"},
        {"step", step_text(opt)},
        {"run", str(grouped(opt.steps), " ", plural(opt.steps, "step"), ", ", decimals(epochs, 2),
                    " epochs, ",
                    state.step >= opt.steps ? str("complete at step ", state.step)
                    : state.step            ? str("resumed at step ", state.step)
                                            : "from the start")},
        {"device", device_text(opt)},
        {"ranks", world_text(world)},
        {"out", opt.out},
        {"memory", bytes_text(plan.total())}};
    for (const std::string& kind : plan.kinds())
        if (plan.total(kind))
            rows.push_back({"", str("  ", kind, " ", bytes_text(plan.total(kind)))});
    if (world.rank == 0) table_print("train_gpt", rows);

    LogSetup setup;
    setup.dir = opt.out;
    setup.steps = opt.steps;
    setup.resume_step = state.step > 0 ? int(state.step) : -1;
    setup.flops_per_token = flops_per_token(c, opt.seq_len);
    setup.peak_flops = device_peak_flops(opt) * world.size;
    setup.speaks = world.rank == 0;
    return std::make_unique<Log>(setup);
}

int signal_agreed(World& world) {
    int signal = signal_received();
    world.dp->all_reduce(&signal, 1, ReduceOp::Max, "signals");
    return signal;
}

void run_report(const Run& run, const RunState& state, const Verdict& verdict, float loss,
                float norm, float lr, const StepTimer& timer, const CommQueue::Times& comm,
                Log& log) {
    StepReport report;
    report.step = int(state.step);
    report.loss = loss, report.grad_norm = norm, report.lr = lr;
    report.ms = timer.ms();
    report.step_tokens = run.opt.batch_tokens;
    if (run.opt.ranks > 1) {
        report.comm_hidden_ms = 1e3 * comm.hidden();
        report.comm_exposed_ms = 1e3 * (comm.exposed + run.agreed);
    }
    report.tokens = state.samples * run.opt.seq_len;
    log.step(report);
    if (!verdict.apply)
        log.event(
            int(state.step), "skip",
            {{"reason", verdict.reason},
             {"loss_z", float(verdict.loss_z)},
             {"norm_z", float(verdict.norm_z)},
             {"in_row", state.skipped_in_row}},
            str("update skipped: ", verdict.reason, ", loss ", loss, ", gradient norm ", norm));
}

void run_stopped(const RunState& state, int signal, Log& log) {
    log.event(int(state.step), "stop", {{"signal", std::string(signal_name(signal))}},
              str("stopped by ", signal_name(signal), "; run the same command again to resume"));
}

template <class Elem, class Stream>
Samples<Elem, Stream>::Samples(Run& run, Memory<Stream>& memory) : run_(run) {
    const SamplingRoom room = sampling_room(run.opt, run.cfg);
    if (!room.capacity) return;
    CHECK(run.tokenizer, Exit::Usage, "--sample-every needs a tokenizer", "none beside the data",
          "", "--tokenizer PATH, or data made by `train_gpt tokenize`");
    decoder_ = std::make_unique<Decoder<Elem, Stream>>(run.cfg, room.capacity, room.batch, memory);
}

template <class Elem, class Stream>
std::string Samples<Elem, Stream>::text(Shards<Elem, Stream>& shards, World& world) {
    std::string text = run_.opt.prompt;
    generate(*decoder_, shards, run_.cfg.V, prompt_tokens(*run_.tokenizer, run_.opt.prompt),
             run_.opt.sample_tokens, *run_.tokenizer, {1, 0, 1, run_.opt.seed}, *world.dp,
             [&](int token) { text += run_.tokenizer->token_bytes(token); });
    shards.reduce();  // no gradients: waits for layers that were fetched ahead
    return text;
}

ShardsConfig shards_config(const Options& opt) {
    ShardsConfig config;
    config.zero = opt.zero;
    config.reduction = opt.reduction;
    config.wire = opt.wire;
    config.stochastic_rounding = opt.rounding == Rounding::Stochastic;
    config.seed = opt.seed;
    config.bucket_bytes = opt.bucket_mb * 1e6;
    config.overlap = opt.overlap == Overlap::On;
    config.micro_batches = opt.micro_batches;
    return config;
}

AdamW adamw(const Options& opt, float lr, int64_t t) {
    return {lr, float(opt.beta1), float(opt.beta2), float(opt.eps), float(opt.weight_decay), t};
}

template <class Elem, class Stream>
float run_validate(Run& run, Gpt<Elem, Stream>& gpt, Shards<Elem, Stream>& shards, World& world) {
    const TimelineScope scope("validation");
    const int64_t samples = int64_t(run.opt.val_batches) * run.opt.micro_batch;
    return float(evaluate(gpt, shards, *run.val, samples, *world.dp).loss);
}

#define RUN_FOR(Elem, Stream)                                                             \
    template RunState run_start(Run&, Shards<Elem, Stream>&, World&);                     \
    template int64_t run_micro_batches(Run&, const RunState&, Gpt<Elem, Stream>&,         \
                                       Shards<Elem, Stream>&, World&);                    \
    template float run_loss(Gpt<Elem, Stream>&, int64_t);                                 \
    template float run_validate(Run&, Gpt<Elem, Stream>&, Shards<Elem, Stream>&, World&); \
    template class Samples<Elem, Stream>;
RUN_FOR(float, CpuStream)
FOR_CUDA(RUN_FOR(float, CudaStream) RUN_FOR(bf16, CudaStream))
