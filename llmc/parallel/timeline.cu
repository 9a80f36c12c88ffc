// Spans of a GPU: events in its streams, read when they have passed.
//
// A timeline never ends a run: a call that fails leaves a gap, and the error to whoever meets it
// next.
#include <deque>
#include <map>
#include <mutex>

#include "llmc/core/launch.cuh"
#include "llmc/parallel/comm_record.h"  // comm_clock
#include "llmc/parallel/timeline.h"

namespace {
constexpr size_t kPending = 256;  // spans that wait before it is looked whether they are over

// An event of a stream, and when it passed.
struct Origin {
    cudaEvent_t event;
    double time;
};
struct Pending {
    TimelineSpan span;
    cudaStream_t stream;
    cudaEvent_t begin, end;
};
std::mutex mutex;
std::map<cudaStream_t, Origin> origins;
std::deque<Pending> pending;
std::vector<cudaEvent_t> spare;

cudaEvent_t event_get() {
    cudaEvent_t event = nullptr;
    if (spare.empty()) return cudaEventCreate(&event) == cudaSuccess ? event : nullptr;
    event = spare.back();
    spare.pop_back();
    return event;
}

bool origin_set(cudaStream_t stream) {
    if (origins.count(stream)) return true;
    const cudaEvent_t event = event_get();
    if (!event || cudaEventRecord(event, stream) != cudaSuccess ||
        cudaEventSynchronize(event) != cudaSuccess)
        return false;
    origins[stream] = {event, comm_clock()};
    return true;
}

// Of an event that has passed.
bool time_of(cudaEvent_t event, cudaStream_t stream, double& time) {
    float ms = 0;
    const Origin& origin = origins[stream];
    if (cudaEventElapsedTime(&ms, origin.event, event) != cudaSuccess) return false;
    time = origin.time + 1e-3 * double(ms);
    return true;
}

// The oldest spans of each stream, as far as they are over.
void collect() {
    std::map<cudaStream_t, bool> under_way;
    for (auto at = pending.begin(); at != pending.end();) {
        bool& wait = under_way[at->stream];
        wait = wait || cudaEventQuery(at->end) != cudaSuccess;
        if (wait) {
            ++at;
            continue;
        }
        if (time_of(at->begin, at->stream, at->span.begin) &&
            time_of(at->end, at->stream, at->span.end))
            timeline_add(at->span);
        spare.push_back(at->begin), spare.push_back(at->end);
        at = pending.erase(at);
    }
}
}  // namespace

void* timeline_mark(CudaStream s) {
    if (!timeline_runs()) return nullptr;
    const std::lock_guard lock(mutex);
    const cudaStream_t stream = cuda_stream(s);
    const cudaEvent_t event = origin_set(stream) ? event_get() : nullptr;
    if (event && cudaEventRecord(event, stream) == cudaSuccess) return event;
    if (event) spare.push_back(event);
    return nullptr;
}

void timeline_add_gpu(const char* name, const char* what, int64_t bytes, Row row, CudaStream s,
                      void* begin, void* end) {
    const std::lock_guard lock(mutex);
    if (begin && end) {
        pending.push_back({{name, what, bytes, 0, 0, row},
                           cuda_stream(s),
                           static_cast<cudaEvent_t>(begin),
                           static_cast<cudaEvent_t>(end)});
        if (pending.size() % kPending == 0) collect();
        return;
    }
    for (void* event : {begin, end})
        if (event) spare.push_back(static_cast<cudaEvent_t>(event));
}

void timeline_collect_gpu() {
    const std::lock_guard lock(mutex);
    collect();
}
