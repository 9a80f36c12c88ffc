#include "llmc/parallel/comm_record.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <mutex>

#include "llmc/core/check.h"
#include "llmc/parallel/comm_behind.h"
#include "llmc/parallel/timeline.h"

namespace {
std::mutex mutex;  // a collective takes microseconds, the lock some 20 ns
struct Ring {
    std::array<CommRecord, kCommRecords> records;
    int64_t last = 0;
    CommRecord& at(int64_t seq) { return records[size_t(seq) % kCommRecords]; }
};
Ring of_run, behind_run;
thread_local bool is_behind = false;

CommRecord newest(Ring& ring) {
    const std::lock_guard lock(mutex);
    return ring.at(ring.last);
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
CommRecording::CommRecording(const char* kind, const char* what, Dtype t, size_t n, int64_t sent) {
    const std::lock_guard lock(mutex);
    Ring& ring = is_behind ? behind_run : of_run;
    seq_ = ++ring.last;
    ring.at(seq_) = {seq_, kind, what, t, n, sent, comm_clock(), 0};
}

CommRecording::~CommRecording() {
    const std::lock_guard lock(mutex);
    CommRecord& r = (is_behind ? behind_run : of_run).at(seq_);
    if (r.seq != seq_) return;
    r.end = comm_clock();
    timeline_add(r.kind, r.what, r.sent, r.begin, r.end);
}

CommRecord comm_last() {
    return newest(of_run);
}
CommRecord comm_last_behind() {
    return newest(behind_run);
}

std::vector<CommRecord> comm_records(int64_t from) {
    const std::lock_guard lock(mutex);
    Ring& ring = of_run;
    std::vector<CommRecord> records;
    for (int64_t seq = std::max({from, ring.last - kCommRecords + 1, int64_t(1)}); seq <= ring.last;
         seq++)
        records.push_back(ring.at(seq));
    return records;
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
