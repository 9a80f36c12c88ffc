// llmc/parallel/comm_record.h: what this rank has communicated, for whoever must explain a hang,
// draw a timeline or count bytes.
//
// A ring of the last kCommRecords collectives of the process, over all communicators and threads.
// Each has a sequence number; ranks that run the same program number them alike, so the one with
// the lowest number is the one the others wait for.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/core/dtype.h"

constexpr int kCommRecords = 256;

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

// Around one collective; the destructor runs also when it throws.
class CommRecording {
  public:
    CommRecording(const char* kind, const char* what, Dtype t, size_t n, int64_t sent);
    ~CommRecording();
    CommRecording(const CommRecording&) = delete;
    CommRecording& operator=(const CommRecording&) = delete;

  private:
    int64_t seq_;
};

// The newest record; a copy, safe to take while collectives run.
CommRecord comm_last();
// Those from sequence number `from` on that the ring still holds, oldest first.
std::vector<CommRecord> comm_records(int64_t from);
// "#17 all-reduce of 21 int64 (loss), under way for 3.2 s"
std::string comm_text(const CommRecord& r);
