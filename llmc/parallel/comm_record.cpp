#include "llmc/parallel/comm_record.h"

#include <time.h>

#include <cstdio>
#include <mutex>

#include "llmc/core/check.h"
#include "llmc/parallel/comm_behind.h"
#include "llmc/parallel/timeline.h"

namespace {
std::mutex mutex;               // a collective takes microseconds, the lock some 20 ns
CommRecord of_run, behind_run;  // the newest
thread_local bool is_behind = false;

CommRecord copy_of(const CommRecord& record) {
    const std::lock_guard lock(mutex);
    return record;
}
}  // namespace

double comm_clock() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

void comm_record_behind() {
    is_behind = true;
}
bool comm_is_behind() {
    return is_behind;
}

// A recording is begun and ended by the same thread.
CommRecording::CommRecording(const char* kind, const char* what, Dtype t, size_t n, int64_t sent,
                             CudaStream stream)
    : stream_(stream) {
    FOR_CUDA(if (stream.handle) mark_ = timeline_mark(stream);)
    const std::lock_guard lock(mutex);
    CommRecord& newest = is_behind ? behind_run : of_run;
    newest = mine_ = {newest.seq + 1, kind, what, t, n, sent, comm_clock(), 0};
}

CommRecording::~CommRecording() {
    const CommRecord& r = mine_;
    mine_.end = comm_clock();
    if (!stream_.handle) timeline_add(r.kind, r.what, r.sent, r.begin, r.end);
    FOR_CUDA(else timeline_add_gpu(r.kind, r.what, r.sent, Row::GpuCommunication, stream_, mark_,
                                   timeline_mark(stream_));)
    const std::lock_guard lock(mutex);
    CommRecord& newest = is_behind ? behind_run : of_run;
    if (newest.seq == mine_.seq) newest = mine_;
}

CommRecord comm_last() {
    return copy_of(of_run);
}
CommRecord comm_last_behind() {
    return copy_of(behind_run);
}

std::string comm_text(const CommRecord& r) {
    if (r.seq == 0) return "none yet";
    char time[64];
    if (r.end > 0)
        std::snprintf(time, sizeof time, "done %.1f s ago", comm_clock() - r.end);
    else
        std::snprintf(time, sizeof time, "under way for %.1f s", comm_clock() - r.begin);
    return str("#", r.seq, " ", r.kind,
               r.count ? str(" of ", r.count, " ", dtype_name(r.dtype)) : "",
               *r.what ? str(" (", r.what, ")") : "", ", ", time);
}
