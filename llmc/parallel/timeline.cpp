#include "llmc/parallel/timeline.h"

#include <atomic>
#include <mutex>
#include <utility>

#include "llmc/parallel/comm_record.h"  // comm_clock

namespace {
std::atomic<bool> running{false};
std::mutex mutex;
Timeline kept;
thread_local int this_thread = 0;
}  // namespace

void timeline_start() {
    running = true;
}
void timeline_thread(int thread) {
    this_thread = thread;
}

void timeline_add(const char* name, const char* what, int64_t bytes, double begin, double end) {
    if (!running) return;
    const std::lock_guard lock(mutex);
    if (kept.spans.size() < kTimelineSpans)
        kept.spans.push_back({name, what, bytes, begin, end, this_thread});
    else
        kept.dropped++;
}

Timeline timeline_take() {
    const std::lock_guard lock(mutex);
    return std::exchange(kept, {});
}

TimelineScope::TimelineScope(const char* name) : name_(name), begin_(comm_clock()) {}
TimelineScope::~TimelineScope() {
    timeline_add(name_, "", -1, begin_, comm_clock());
}
