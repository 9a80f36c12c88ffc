// train_gpt.cu: trains GPT-2-, LLaMA- and Qwen-style models, from one CPU core to many GPUs.
//
//   train_gpt --model gpt2:d6 --data 'corpus_train_*.bin' --val-data 'corpus_val_*.bin' --out run
//   train_gpt --help
//
// This file tells the story; each line of it leads one hop further:
//   llmc/train/options.h     every option, checked before anything is allocated
//   llmc/train/run.h         output directory, data, what to resume from
//   llmc/train/saver.h       saving, at once or behind the training
//   llmc/model/gpt.h         forward and backward; llmc/model/block.h is one layer
//   llmc/parallel/shards.h   who holds which slice of parameters, gradients and moments
//   llmc/train/run_state.h   what a step may do to the weights
#include "llmc/parallel/selftest.h"
#include "llmc/parallel/watchdog.h"
#include "llmc/train/alike.h"
#include "llmc/train/commands.h"
#include "llmc/train/device.h"
#include "llmc/train/run.h"
#include "llmc/train/saver.h"
#include "llmc/train/schedule.h"
#include "llmc/train/signals.h"
#include "llmc/train/trace.h"

template <class Elem, class Stream>
static Exit train(const Options& options, World& world, Watchdog& watchdog) {
    Trace trace(options.trace, *world.dp, watchdog);

    // Everything that can go wrong goes wrong here, before memory is taken.
    Run run = run_open(options, world);
    const Options& opt = run.opt;

    // All memory of the run.
    const StreamOwner<Stream> stream;
    Memory<Stream> memory{stream.get()};
    Comm& dp = world_dp(world, stream.get());
    Shards<Elem, Stream> shards(param_layout(run.cfg), shards_config(opt), dp, memory);
    auto gpt =
        gpt_create<Elem>(run.cfg, opt.micro_batch, opt.seq_len, opt.recompute, false, memory);
    Samples<Elem, Stream> samples(run, memory);
    Saver<Elem, Stream> saver(run, shards, world, memory);
    RunState state = run_start(run, shards, world);
    const std::unique_ptr<Log> log = run_log(run, state, memory.plan(), world);

    try {
        for (;;) {
            // Between two steps: validate, sample, save. A signal saves at once and leaves the rest
            // to the run that resumes.
            const int signal = signal_agreed(world);
            const bool last = state.step >= opt.steps;
            watchdog.phase(RunPhase::Evaluate, state.step);
            if (!signal && !state.boundary_done) {
                if (run.val && (due(opt.val_every, state.step) || last))
                    log->validation(int(state.step), run_validate(run, gpt, shards, world));
                watchdog.phase(RunPhase::Sample, state.step);
                if (due(opt.sample_every, state.step))
                    log->sample(int(state.step), samples.text(shards, world));
                state.boundary_done = true;
            }
            watchdog.phase(RunPhase::Save, state.step);
            saver.look(*log);
            if (signal || last || (state.step > 0 && due(opt.save_every, state.step)))
                saver.save(state, *log, signal || last);
            if (signal || last) trace.write();
            if (last) return Exit::Done;
            if (signal) return run_stopped(state, signal, *log), Exit::Signalled;

            // One step.
            watchdog.phase(RunPhase::Step, state.step + 1);
            const StepTimer timer;
            cuda_note_step(state.step + 1);
            const float lr = learning_rate(opt, int(state.step));
            const int64_t targets = run_micro_batches(run, state, gpt, shards, world);
            shards.reduce();
            shards.clip(opt.grad_clip, gpt.loss_sum);
            if (watches_spikes(opt) &&
                !step_verdict(state, opt, run_loss(gpt, targets), shards.norm()).apply)
                shards.skip();
            shards.step(adamw(opt, lr, state.updates + 1));
            shards.gather();

            // Until here a GPU has only been told what to do; now its results are waited for.
            const float loss = run_loss(gpt, targets), norm = shards.norm();
            const Verdict verdict = step_judge(state, opt, loss, norm);
            state.samples += opt.batch_tokens / opt.seq_len;
            state.boundary_done = false;
            run_report(run, state, verdict, loss, norm, lr, timer, shards.take_comm_times(), *log);
            check_skipped(state, opt, verdict);
        }
    } catch (...) {
        watchdog.phase(RunPhase::Save, state.step);
        saver.leave(*log);  // a save may be under way
        throw;
    }
}

int main(int argc, char** argv) {
    World world;
    return report_errors(world, [&] {
        // Before anything else: signals may come, and other ranks may not.
        const OptionsGlance glance = options_glance(argc, argv);
        if (glance.trains) signals_install();
        world = world_init(glance.start_limit);
        Watchdog watchdog(world, {.start = glance.start_limit});

        Options opt = options_parse(argc, argv);
        check_started_alike(opt, world);
        if (opt.answered) return Exit::Done;
        device_setup(opt, world);
        check_device_alike(opt, world);
        watch_command(opt, world, watchdog);
        switch (opt.command) {
            case Command::Train:
                return on_device(opt, [&]<class Elem, class Stream>() {
                    return train<Elem, Stream>(opt, world, watchdog);
                });
            case Command::Plan:
                return plan_run(opt, world);
            case Command::Tokenize:
                return tokenize_command(opt, world);
            case Command::TrainBpe:
                return train_bpe_command(opt, world);
            case Command::Generate:
                return generate_run(opt, world);
            case Command::Eval:
                return eval_run(opt, world);
            case Command::Import:
                return import_run(opt, world);
            case Command::Export:
                return export_run(opt, world);
            case Command::Verify:
                return verify_run(opt, world);
            case Command::SelftestComm:
                selftest_comm(world, size_t(opt.max_mb) << 20, opt.device == Device::Cuda);
                return Exit::Done;
        }
        return Exit::Usage;
    });
}
