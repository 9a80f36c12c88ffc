// llmc/io/checkpoint_async.h: a save behind the back of a run.
//
// A thread does what checkpoint_save does, step by step, on a communicator of its own. One save is
// under way at most. The memory that the pieces point at belongs to the save until finish()
// returns.
#pragma once
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "llmc/io/checkpoint.h"

class AsyncSave {
  public:
    // `background`: all ranks of the run; nobody else uses it while a save is under way.
    explicit AsyncSave(Comm& background) : comm_(background) {}
    // Waits for a save under way. Where an error ends the run, say so before (train/saver.h).
    ~AsyncSave();
    AsyncSave(const AsyncSave&) = delete;
    AsyncSave& operator=(const AsyncSave&) = delete;

    // Collective, as the others: every rank starts the same save and finishes it. None may be under
    // way. `saves` is the thread's until finish() returns.
    void start(const std::string& out_dir, const CheckpointMeta& meta,
               std::vector<TensorPiece> my_pieces, Saves& saves);
    bool under_way() const { return thread_.joinable(); }
    // Whether it has ended on every rank, asked over the run's own communicator: the same answer
    // everywhere, at the same place in the program. Throws what finish() would throw.
    bool ended_everywhere(Comm& comm);
    // Waits for the end, and gives every rank the same result. Throws PeerFailed where a rank has
    // failed meanwhile.
    SaveResult finish();
    // Of the last one: from start to end, whoever waited for it.
    double seconds() const { return seconds_; }

  private:
    bool ended();

    Comm& comm_;
    std::mutex mutex_;  // of what the thread leaves behind:
    bool ended_ = false;
    SaveResult result_;
    std::exception_ptr error_;
    double seconds_ = 0;
    std::thread thread_;
};
