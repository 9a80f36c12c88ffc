// llmc/train/saver.h: saving at step boundaries, at once or behind the training (--async-save).
//
// With --async-save the state is copied at the step, and a thread writes the copy while training
// goes on (llmc/io/checkpoint_async.h): the same files, only later. One save is under way at most:
// the next one waits for it, and so does the end of the run, whose own save is written at once. A
// save that fails is known to all ranks at the next step boundary, with the reason of the rank
// where it failed; it is logged, and training goes on.
#pragma once
#include "llmc/io/checkpoint_async.h"
#include "llmc/train/run.h"

// Room for the copy of the state that a rank saves: null without --async-save, and on CUDA, where
// the state is copied to host memory for a save in any case.
template <class Stream>
float* snapshot_create(const Options& opt, const ModelConfig& cfg, Memory<Stream>& memory);

template <class Elem, class Stream>
class Saver {
  public:
    Saver(Run& run, Shards<Elem, Stream>& shards, World& world, Memory<Stream>& memory);

    // ---- at a step boundary, by all ranks
    // Saves this state, unless it is saved already. With last_chance a save that fails ends the
    // run: exit code Resource.
    void save(const RunState& state, Log& log, bool last_chance);
    // Logs the save under way if it has ended on every rank.
    void look(Log& log);

    // ---- called in the handler of an exception that ends the run
    // What all ranks throw at the same step waits for a save under way, whose state is sound. Any
    // other error does not: it is reported, and the process ends. What was being written stays
    // behind under its temporary name, as after a kill.
    void leave(Log& log);

  private:
    std::vector<TensorPiece> snapshot();
    void finish(Log& log);
    void report(const SaveResult& saved, double seconds, double waited, Log& log, bool last_chance);

    Run& run_;
    Shards<Elem, Stream>& shards_;
    World& world_;
    float* snapshot_;
    int64_t step_ = -1;  // of the save under way
    double waited_ = 0;  // seconds that it has cost the training
    AsyncSave behind_;   // last: it uses the others
};
