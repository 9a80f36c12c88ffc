#include "llmc/parallel/comm_record.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <mutex>

#include "llmc/core/check.h"
#include "llmc/parallel/timeline.h"

namespace {
std::mutex mutex;  // a collective takes microseconds, the lock some 20 ns
std::array<CommRecord, kCommRecords> ring;
int64_t last = 0;

CommRecord& slot(int64_t seq) {
    return ring[size_t(seq) % kCommRecords];
}
}  // namespace

double comm_clock() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

CommRecording::CommRecording(const char* kind, const char* what, Dtype t, size_t n, int64_t sent) {
    const std::lock_guard lock(mutex);
    seq_ = ++last;
    slot(seq_) = {seq_, kind, what, t, n, sent, comm_clock(), 0};
}

CommRecording::~CommRecording() {
    const std::lock_guard lock(mutex);
    CommRecord& r = slot(seq_);
    if (r.seq != seq_) return;
    r.end = comm_clock();
    timeline_add(r.kind, r.what, r.sent, r.begin, r.end);
}

CommRecord comm_last() {
    const std::lock_guard lock(mutex);
    return slot(last);
}

std::vector<CommRecord> comm_records(int64_t from) {
    const std::lock_guard lock(mutex);
    std::vector<CommRecord> records;
    for (int64_t seq = std::max({from, last - kCommRecords + 1, int64_t(1)}); seq <= last; seq++)
        records.push_back(slot(seq));
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
