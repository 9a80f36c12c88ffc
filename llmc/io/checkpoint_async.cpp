#include "llmc/io/checkpoint_async.h"

#include <omp.h>

#include "llmc/core/check.h"
#include "llmc/parallel/comm_behind.h"
#include "llmc/parallel/timeline.h"

AsyncSave::~AsyncSave() {
    if (under_way()) thread_.join();
}

void AsyncSave::start(const std::string& out_dir, const CheckpointMeta& meta,
                      std::vector<TensorPiece> my_pieces, Saves& saves) {
    CHECK(!under_way(), Exit::Usage, "a save is under way");
    ended_ = false;
    thread_ = std::thread([this, out_dir, meta, pieces = std::move(my_pieces), &saves] {
        timeline_thread(Row::Saving);
        comm_record_behind();
        omp_set_num_threads(1);  // of this thread: the cores belong to the one that computes
        const double begin = comm_clock();
        SaveResult result;
        std::exception_ptr error;
        try {
            const TimelineScope scope("save");
            result = checkpoint_save(out_dir, meta, pieces, comm_, saves);
        } catch (...) {
            error = std::current_exception();
        }
        const std::lock_guard lock(mutex_);
        ended_ = true, result_ = std::move(result), error_ = error;
        seconds_ = comm_clock() - begin;
    });
}

bool AsyncSave::ended() {
    const std::lock_guard lock(mutex_);
    if (error_) std::rethrow_exception(error_);
    return ended_;
}

bool AsyncSave::ended_everywhere(Comm& comm) {
    int32_t all = ended();
    comm.all_reduce(&all, 1, ReduceOp::Min, "has the save ended");
    return all;
}

SaveResult AsyncSave::finish() {
    thread_.join();
    ended();
    return std::move(result_);
}
