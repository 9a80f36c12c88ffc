// llmc/parallel/comm_record.h: what this rank has communicated last, for whoever must explain a
// hang; and every collective for the timeline.
//
// The collectives of the process, over all communicators and threads, have numbers; ranks that run
// the same program number them alike, so the one with the lowest number is the one the others wait
// for.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "llmc/core/backend.h"
#include "llmc/core/dtype.h"

struct CommRecord {
    int64_t seq = 0;        // 1, 2, 3, ...; 0: none yet
    const char* kind = "";  // all-reduce, ...
    const char* what = "";  // what for
    Dtype dtype = Dtype::F32;
    size_t count = 0;           // elements
    int64_t sent = 0;           // bytes, as Comm::bytes_sent counts
    double begin = 0, end = 0;  // seconds of comm_clock; end 0: under way
};

// Seconds on a clock that all ranks of a host share.
double comm_clock();

// Around one collective; the destructor runs also when it throws. One that is queued on a GPU's
// stream has the times of the queueing in its record, and those of the GPU in the timeline.
class CommRecording {
  public:
    CommRecording(const char* kind, const char* what, Dtype t, size_t n, int64_t sent,
                  CudaStream stream);
    ~CommRecording();
    CommRecording(const CommRecording&) = delete;
    CommRecording& operator=(const CommRecording&) = delete;

  private:
    CommRecord mine_;
    CudaStream stream_;
    void* mark_ = nullptr;
};

// The newest record; a copy, safe to take while collectives run.
CommRecord comm_last();
// "#17 all-reduce of 21 int64 (loss), under way for 3.2 s"
std::string comm_text(const CommRecord& r);
