#include "llmc/train/saver.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "llmc/core/check.h"
#include "llmc/parallel/comm_record.h"  // comm_clock
#include "llmc/parallel/timeline.h"
#include "llmc/train/commands.h"
#include "llmc/train/planner.h"
#include "llmc/train/saves.h"

template <class Stream>
constexpr bool kStateOnHost = std::is_same_v<Stream, CpuStream>;

template <class Stream>
float* snapshot_create(const Options& opt, const ModelConfig& cfg, Memory<Stream>& memory) {
    if (opt.async_save == AsyncSaves::Off || !kStateOnHost<Stream>) return nullptr;
    // As much on every rank as the one needs that owns most: padding, which is not saved, makes the
    // others' shares smaller.
    int64_t most = 0;
    for (const auto& pieces : planned_pieces(param_layout(cfg), shards_config(opt), opt.ranks)) {
        int64_t count = 0;
        for (const TensorPiece& p : pieces) count += p.count;
        most = std::max(most, count);
    }
    return memory.template get<float>("snapshot", "weights and moments, to be written", most);
}

template <class Elem, class Stream>
Saver<Elem, Stream>::Saver(Run& run, Shards<Elem, Stream>& shards, World& world,
                           Memory<Stream>& memory)
    : run_(run),
      shards_(shards),
      world_(world),
      snapshot_(snapshot_create(run.opt, run.cfg, memory)),
      behind_(*world.background) {
    const bool one_host = world.local_size == world.size;
    CHECK(run.opt.async_save == AsyncSaves::Off || one_host || world.mpi->many_threads, Exit::Usage,
          "--async-save over several hosts needs an MPI for several threads",
          world.mpi ? world.mpi->library : "", "MPI_THREAD_MULTIPLE", "do without --async-save");
}

// The state as it is now, in memory that the training leaves alone.
template <class Elem, class Stream>
std::vector<TensorPiece> Saver<Elem, Stream>::snapshot() {
    std::vector<TensorPiece> pieces = state_pieces(shards_, Groups::All, Pieces::Owned);
    if (!snapshot_) return pieces;
    int64_t at = 0;
    for (TensorPiece& p : pieces) {
        std::memcpy(snapshot_ + at, p.data, size_t(p.count) * sizeof(float));
        p.data = snapshot_ + at;
        at += p.count;
    }
    return pieces;
}

template <class Elem, class Stream>
void Saver<Elem, Stream>::save(const RunState& state, Log& log, bool last_chance) {
    finish(log);
    if (run_.saved_step == state.step) return;
    const bool behind = run_.opt.async_save == AsyncSaves::On && !last_chance;
    const TimelineScope scope(behind ? "snapshot" : "save");
    const double begin = comm_clock();
    log.sync();
    shards_.state_to_host();
    const CheckpointMeta meta = checkpoint_meta(run_.id, state, run_.opt, run_.cfg,
                                                run_.tokenizer.get(), world_, run_.data);
    step_ = state.step;
    if (behind) {
        behind_.start(run_.opt.out, meta, snapshot(), run_.saves);
        waited_ = comm_clock() - begin;
    } else {
        const SaveResult saved =
            checkpoint_save(run_.opt.out, meta, state_pieces(shards_, Groups::All, Pieces::Owned),
                            *world_.dp, run_.saves);
        const double seconds = comm_clock() - begin;
        report(saved, seconds, seconds, log, last_chance);
    }
}

template <class Elem, class Stream>
void Saver<Elem, Stream>::look(Log& log) {
    if (behind_.under_way() && behind_.ended_everywhere(*world_.dp)) finish(log);
}

template <class Elem, class Stream>
void Saver<Elem, Stream>::finish(Log& log) {
    if (!behind_.under_way()) return;
    const TimelineScope scope("wait for the save");
    const double begin = comm_clock();
    const SaveResult saved = behind_.finish();
    waited_ += comm_clock() - begin;
    report(saved, behind_.seconds(), waited_, log, false);
}

template <class Elem, class Stream>
void Saver<Elem, Stream>::report(const SaveResult& saved, double seconds, double waited, Log& log,
                                 bool last_chance) {
    const bool hidden = run_.opt.async_save == AsyncSaves::On && seconds > waited;
    char times[64];
    std::snprintf(times, sizeof times, hidden ? " in %.2f s, %.2f s of it hidden" : " in %.2f s",
                  seconds, seconds - waited);
    if (saved.ok) {
        run_.saved_step = step_;
        log.event(int(step_), "save",
                  {{"path", saved.path},
                   {"state", saved.state},
                   {"bytes", saved.bytes},
                   {"seconds", float(seconds)},
                   {"exposed_seconds", float(waited)}},
                  str("saved ", saved.path, ", ", bytes_text(saved.bytes), times));
    } else {
        log.event(int(step_), "save_failed", {{"reason", saved.reason}},
                  "NOT SAVED: " + saved.reason + (last_chance ? "" : "; training goes on"));
        CHECK(!last_chance, Exit::Resource, str("step ", step_, " could not be saved"),
              saved.reason, "",
              "the same command goes on from the newest checkpoint, once there is room");
    }
}

template <class Elem, class Stream>
void Saver<Elem, Stream>::leave(Log& log) {
    if (!behind_.under_way()) return;
    try {
        throw;
    } catch (const Error& e) {
        if (e.code == Exit::NonFinite) return finish(log);
    } catch (...) {
    }
    const int code = report_errors(world_, []() -> Exit { throw; });
    std::fflush(nullptr);
    std::_Exit(code);
}

#define SAVER_FOR(Elem, Stream)                                                           \
    template float* snapshot_create(const Options&, const ModelConfig&, Memory<Stream>&); \
    template class Saver<Elem, Stream>;
SAVER_FOR(float, CpuStream)
FOR_CUDA(SAVER_FOR(float, CudaStream) template class Saver<bf16, CudaStream>;)
