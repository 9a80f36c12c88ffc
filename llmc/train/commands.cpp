#include "llmc/train/commands.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>

#include "llmc/core/plural.h"
#include "llmc/io/checkpoint.h"
#include "llmc/io/checkpoint_agree.h"
#include "llmc/io/checkpoint_names.h"
#include "llmc/io/files.h"
#include "llmc/io/llmc_model.h"
#include "llmc/io/run_lock.h"
#include "llmc/train/alike.h"
#include "llmc/train/device.h"
#include "llmc/train/eval_task.h"
#include "llmc/train/evaluate.h"
#include "llmc/train/hf.h"
#include "llmc/train/model_file.h"
#include "llmc/train/planner.h"
#include "llmc/train/progress.h"
#include "llmc/train/run.h"
#include "llmc/train/saves.h"
#include "llmc/train/signals.h"
#include "llmc/train/tokenize.h"

// The run id of an imported model.
static constexpr const char* kImporter = "import";

int report_errors(World& world, const std::function<Exit()>& command) {
    // A limit on the size of files (ulimit -f) is an error of who writes, not a signal that ends
    // us.
    std::signal(SIGXFSZ, SIG_IGN);
    std::string message;
    Exit code = Exit::Usage;
    struct Leave {
        ~Leave() { signals_ignore(); }
    };
    try {
        const Leave leave;
        return int(command());
    } catch (const Error& e) {
        message = e.what(), code = e.code;
    } catch (const std::bad_alloc&) {
        message = "out of memory; hint: a smaller --micro-batch or --model, or --recompute block";
        code = Exit::Resource;
    } catch (const PeerFailed& e) {
        return world_fail(world, e.code, "");
    } catch (const std::exception& e) {  // of a library, and not foreseen
        message = e.what(), code = Exit::Resource;
    }
    return world_fail(world, int(code), message);
}

void watch_command(const Options& opt, const World& world, Watchdog& watchdog) {
    const bool train = opt.command == Command::Train;
    constexpr double never = 1e18;
    if (train || world.size > 1)
        watchdog.limits({opt.start_limit, opt.step_limit, opt.save_limit});
    else
        watchdog.limits({never, never, never});
    switch (opt.command) {
        case Command::Train:
            break;
        case Command::Import:
        case Command::Export:
        case Command::Verify:
        case Command::Tokenize:
        case Command::TrainBpe:
            return watchdog.phase(RunPhase::Files);
        default:
            watchdog.phase(RunPhase::Compute);
    }
}

Exit plan_run(const Options& options, World& world) {
    Options opt = options;
    const NamedModel model = run_model(opt, world);
    options_derive(opt, model.cfg.max_T, opt.ranks);
    plan_print(opt, model.cfg, model.tokenizer.get());
    return Exit::Done;
}

// What is written once is written by rank 0; the others wait for its verdict, and end as it does.
static Exit by_root(World& world, const std::function<void()>& work) {
    if (const auto error = agree_on_root(*world.dp, work)) throw *error;
    return Exit::Done;
}

Exit tokenize_command(const Options& opt, World& world) {
    return by_root(world, [&] { tokenize_run(opt); });
}

Exit train_bpe_command(const Options& opt, World& world) {
    return by_root(world, [&] { train_bpe_run(opt); });
}

template <class Elem, class Stream>
static Exit eval_with(const Options& opt, World& world) {
    const StreamOwner<Stream> stream;
    Memory<Stream> memory{stream.get()};
    const auto model = model_load<Elem>(opt.model, world, memory);
    const int T = opt.seq_len > 0 ? opt.seq_len : std::min(model.cfg.max_T, kSeqLen);
    check_seq_len(model.cfg, T);
    const TokenFiles data = TokenFiles::open(opt.data, model.cfg.V, *world.dp);
    check_alike(alike_lines(data), world);
    CHECK(data.samples(T) > 0, Exit::Usage, "the data is shorter than one sample",
          counted(data.tokens(), "token"), str("at least ", T + 1, " in one shard"));
    auto gpt = gpt_create<Elem>(model.cfg, opt.micro_batch, T, Recompute::Block, true, memory);
    std::optional<Progress> bar;
    const auto progress = [&](int64_t done, int64_t all) {
        if (!bar) bar.emplace("eval", all);
        bar->update(done, "samples");
    };
    const Evaluation e = world.rank == 0
                             ? evaluate(gpt, *model.shards, data, 0, *world.dp, progress)
                             : evaluate(gpt, *model.shards, data, 0, *world.dp);
    if (world.rank != 0) return Exit::Done;
    bar.reset();
    const nlohmann::ordered_json result = {
        {"model", opt.model}, {"step", model.checkpoint.manifest.meta.step},
        {"task", "loss"},     {"tokens", e.targets},
        {"val_loss", e.loss}, {"perplexity", std::exp(e.loss)}};
    std::printf("%s\n", result.dump().c_str());
    return Exit::Done;
}

Exit eval_run(const Options& opt, World& world) {
    if (opt.task != EvalTask::Loss) return eval_task_run(opt, world);
    return on_device(
        opt, [&]<class Elem, class Stream>() { return eval_with<Elem, Stream>(opt, world); });
}

Exit verify_run(const Options& opt, World& world) {
    std::printf("state %s\n", checkpoint_verify(opt.path, *world.dp).c_str());
    return Exit::Done;
}

// An imported model is step 0 of a run of its own: beside another's checkpoints, `latest` and the
// next resume would mean the wrong one. What an import that was killed has left is no obstacle.
static void import_check_out(const std::string& out, World& world) {
    const auto error = agree_on_root(*world.dp, [&] {
        constexpr const char* kExpected = "a new directory";
        const std::string owner = run_owner(out), ckpt = ckpt_dir(out);
        CHECK(owner.empty() || owner == kImporter, Exit::Usage,
              str("--out ", out, " belongs to another run"), owner, kExpected);
        if (!path_exists(ckpt)) return;
        for (const std::string& name : dir_list(dir_open(ckpt), ckpt))
            CHECK(step_of(name) < 0, Exit::Usage, str("--out ", out, " has checkpoints"),
                  str(ckpt, "/", name), kExpected);
    });
    if (error) throw *error;
}

Exit import_run(const Options& opt, World& world) {
    import_check_out(opt.out, world);
    const ModelFile file = model_file_open(opt.path);
    const ModelConfig& cfg = file.cfg;
    const std::unique_ptr<Tokenizer> tokenizer =
        opt.tokenizer.empty() ? model_file_tokenizer(opt.path) : tokenizer_named(opt.tokenizer);
    if (tokenizer) check_tokenizer_fits(*tokenizer, cfg);
    const RunLock lock(opt.out, kImporter, *world.dp);

    Options as_run = opt;
    as_run.seq_len = cfg.max_T;
    Saves saves;
    const SaveResult saved = checkpoint_save(
        opt.out, checkpoint_meta(kImporter, {}, as_run, cfg, tokenizer.get(), world),
        model_file_pieces(file, *world.dp), *world.dp, saves);
    CHECK(saved.ok, Exit::Resource, "cannot save the imported model", saved.reason);
    std::printf("%s\nstate %s\n", saved.path.c_str(), saved.state.c_str());
    return Exit::Done;
}

Exit export_run(const Options& opt, World& world) {
    const OpenCheckpoint checkpoint = checkpoint_open(opt.path, *world.dp);
    const ModelConfig c = model_config_from_json(checkpoint.manifest.meta.model, checkpoint.path);
    const ParamLayout layout = param_layout(c);
    const TensorSource source = checkpoint_source(checkpoint);
    const auto error = agree_on_root(*world.dp, [&] {
        if (opt.format == ExportFormat::Hf) {
            const auto tokenizer = checkpoint_tokenizer(checkpoint);
            return hf_model_write(opt.out, c, source, layout, tokenizer.get(), opt.dtype);
        }
        CHECK(c.positions == Positions::Learned, Exit::Usage,
              "the model has no place in a llm.c model file", "a LLaMA", "a GPT-2");
        CHECK(c.tied && c.F == 4 * c.C && c.eps == 1e-5f, Exit::Usage,
              "the model has no place in a llm.c model file",
              str(c.tied ? "tied" : "untied", " head, MLP width ", c.F, ", layer norm epsilon ",
                  c.eps),
              str("tied head, MLP width ", 4 * c.C, ", layer norm epsilon 1e-5"));
        llmc_model_write(opt.out, source, layout, {opt.dtype, c.max_T, c.V, c.L, c.H, c.C, c.Vp});
    });
    if (error) throw *error;
    return Exit::Done;
}
