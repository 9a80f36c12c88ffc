#include "llmc/parallel/timeline.h"

#include <atomic>
#include <mutex>
#include <utility>

#include "llmc/parallel/comm_record.h"  // comm_clock

namespace {
std::atomic<bool> running{false};
std::mutex mutex;
Timeline kept;
thread_local Row this_row = Row::Training;
}  // namespace

void timeline_start() {
    running = true;
}
bool timeline_runs() {
    return running;
}
void timeline_thread(Row row) {
    this_row = row;
}

void timeline_add(const char* name, const char* what, int64_t bytes, double begin, double end) {
    timeline_add({name, what, bytes, begin, end, this_row});
}
void timeline_add(const TimelineSpan& span) {
    if (!running) return;
    const std::lock_guard lock(mutex);
    if (kept.spans.size() < kTimelineSpans)
        kept.spans.push_back(span);
    else
        kept.dropped++;
}

Timeline timeline_take() {
    FOR_CUDA(timeline_collect_gpu();)
    const std::lock_guard lock(mutex);
    return std::exchange(kept, {});
}

TimelineScope::TimelineScope(const char* name, CpuStream) : name_(name), begin_(comm_clock()) {}
TimelineScope::TimelineScope(const char* name, CudaStream s)
    : name_(name), begin_(comm_clock()), stream_(s) {
    FOR_CUDA(mark_ = timeline_mark(s);)
}
TimelineScope::~TimelineScope() {
    if (!stream_.handle) timeline_add(name_, "", -1, begin_, comm_clock());
    FOR_CUDA(else if (mark_)
                 timeline_add_gpu(name_, "", -1, Row::Gpu, stream_, mark_, timeline_mark(stream_));)
}
