// llmc/parallel/timeline.h: what this rank did when: computing, each collective with its bytes,
// waits.
//
// Nothing is kept until timeline_start(). Spans are kept in memory, up to kTimelineSpans of them,
// and written at the end of the run (train/trace.h) for https://ui.perfetto.dev.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

constexpr size_t kTimelineSpans = 200'000;  // some 10 MB; what comes later is only counted

struct TimelineSpan {
    const char *name, *what;  // literals
    int64_t bytes;            // sent; -1: says nothing
    double begin, end;        // comm_clock
    int thread;               // 0 the one that trains, 1 the one that sends, 2 the one that saves
};

void timeline_start();
// Which thread the caller is, for what it adds from now on.
void timeline_thread(int thread);
void timeline_add(const char* name, const char* what, int64_t bytes, double begin, double end);
// What was kept, and how many were not.
struct Timeline {
    std::vector<TimelineSpan> spans;
    int64_t dropped = 0;
};
Timeline timeline_take();

// The time between construction and destruction.
class TimelineScope {
  public:
    explicit TimelineScope(const char* name);
    ~TimelineScope();
    TimelineScope(const TimelineScope&) = delete;
    TimelineScope& operator=(const TimelineScope&) = delete;

  private:
    const char* name_;
    double begin_;
};
