// llmc/parallel/timeline.h: what this rank did when: computing, each collective with its bytes,
// waits.
//
// Nothing is kept until timeline_start(). Spans are kept in memory, up to kTimelineSpans of them,
// and written at the end of the run (train/trace.h) for https://ui.perfetto.dev.
//
// A GPU does later what the host has queued: its spans lie between two marks in the stream, and are
// known when it has passed both. Times of a GPU are on the host's clock to within some 20 us, and
// 0.06 ms a quarter of an hour after the start (a time between two events is a float of ms).
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "llmc/core/backend.h"

constexpr size_t kTimelineSpans = 200'000;  // some 10 MB; what comes later is only counted

enum class Row { Training, Communication, Saving, Gpu, GpuCommunication };

struct TimelineSpan {
    const char *name, *what;  // literals
    int64_t bytes;            // sent; -1: says nothing
    double begin, end;        // comm_clock
    Row row;
};

void timeline_start();
bool timeline_runs();
// What the calling thread is, for what it adds from now on.
void timeline_thread(Row row);
void timeline_add(const char* name, const char* what, int64_t bytes, double begin, double end);
void timeline_add(const TimelineSpan& span);

// A point in a stream; null without a timeline, and when the GPU refuses. The first one of a stream
// waits for what was queued there before.
void* timeline_mark(CudaStream s);
// What the GPU did between two marks of the stream, which are used up; nothing if one is null.
void timeline_add_gpu(const char* name, const char* what, int64_t bytes, Row row, CudaStream s,
                      void* begin, void* end);
void timeline_collect_gpu();  // adds what the GPU has done by now

// What was kept, and how many were not. Of a GPU: what it has done by now.
struct Timeline {
    std::vector<TimelineSpan> spans;
    int64_t dropped = 0;
};
Timeline timeline_take();

// The time between construction and destruction, of the thread or of the stream.
class TimelineScope {
  public:
    explicit TimelineScope(const char* name, CpuStream s = {});
    TimelineScope(const char* name, CudaStream s);
    ~TimelineScope();
    TimelineScope(const TimelineScope&) = delete;
    TimelineScope& operator=(const TimelineScope&) = delete;

  private:
    const char* name_;
    double begin_;
    CudaStream stream_{};
    void* mark_ = nullptr;
};
