// StreamQueue: events between the stream that computes and the one that communicates.
#include "llmc/core/launch.cuh"
#include "llmc/parallel/comm_queue.h"
#include "llmc/parallel/timeline.h"

constexpr size_t kSpans = 512;  // events are not taken back before so many are under way

StreamQueue::StreamQueue(bool overlap, CudaStream compute, CudaStream communication)
    : overlap_(overlap), compute_(compute), communication_(communication) {}

// What is still under way uses memory that goes next.
StreamQueue::~StreamQueue() {
    if (communication_.handle) cudaStreamSynchronize(cuda_stream(communication_));
    for (const std::deque<Span>* spans : {&work_, &waits_})
        for (const Span& s : *spans) free_.push_back(s.begin), free_.push_back(s.end);
    for (void* event : free_) cudaEventDestroy(static_cast<cudaEvent_t>(event));
}

void* StreamQueue::event_record(CudaStream s) {
    if (free_.empty()) {
        cudaEvent_t event = nullptr;
        CUDA_CHECK(cudaEventCreate(&event));
        free_.push_back(event);
    }
    void* event = free_.back();
    free_.pop_back();
    CUDA_CHECK(cudaEventRecord(static_cast<cudaEvent_t>(event), cuda_stream(s)));
    return event;
}

static void wait_for(CudaStream s, void* event) {
    CUDA_CHECK(cudaStreamWaitEvent(cuda_stream(s), static_cast<cudaEvent_t>(event), 0));
}

int64_t StreamQueue::submit(const std::function<void()>& work) {
    if (!communication_.handle) return work(), 0;
    void* now = event_record(compute_);
    wait_for(communication_, now);
    free_.push_back(now);  // a wait keeps what was recorded, not the event
    Span span{event_record(communication_), nullptr};
    work();
    span.end = event_record(communication_);
    work_.push_back(span);
    submitted_++;
    if (work_.size() > kSpans) collect(work_, times_.busy, kSpans / 2);
    if (!overlap_) wait(submitted_);
    return submitted_;
}

void StreamQueue::wait(int64_t ticket) {
    if (ticket <= waited_) return;
    waited_ = ticket;
    const int64_t known = submitted_ - int64_t(work_.size());  // to be over
    if (ticket <= known) return;
    const TimelineScope scope("wait for communication", compute_);
    Span span{event_record(compute_), nullptr};
    wait_for(compute_, work_[size_t(ticket - known - 1)].end);
    span.end = event_record(compute_);
    waits_.push_back(span);
    if (waits_.size() > kSpans) collect(waits_, times_.exposed, kSpans / 2);
}

// Adds up the oldest spans and takes their events back: those that are over, and all but `keep`.
void StreamQueue::collect(std::deque<Span>& spans, double& seconds, size_t keep) {
    while (!spans.empty()) {
        auto* begin = static_cast<cudaEvent_t>(spans.front().begin);
        auto* end = static_cast<cudaEvent_t>(spans.front().end);
        if (spans.size() > keep)
            CUDA_CHECK(cudaEventSynchronize(end));
        else if (const cudaError_t state = cudaEventQuery(end); state == cudaErrorNotReady)
            return;
        else
            CUDA_CHECK(state);
        float ms = 0;
        CUDA_CHECK(cudaEventElapsedTime(&ms, begin, end));
        seconds += 1e-3 * double(ms);
        free_.push_back(begin), free_.push_back(end);
        spans.pop_front();
    }
}

CommQueue::Times StreamQueue::take_times() {
    collect(work_, times_.busy, kSpans);
    collect(waits_, times_.exposed, kSpans);
    const CommQueue::Times times = times_;
    times_ = {};
    return times;
}
