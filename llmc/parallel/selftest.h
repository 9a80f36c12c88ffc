// llmc/parallel/selftest.h: `train_gpt selftest-comm`: do the collectives give the right values
// here, and how fast are they?
#pragma once
#include <vector>

#include "llmc/parallel/world.h"

// Checks every collective with every type at sizes around the limits of pieces. Throws
// Error(Damaged) on every rank if any rank got a wrong value, naming the collective.
void comm_check(Comm& comm);

// One row of the table: `bytes` of fp32, best of a few repetitions. Algorithm bandwidth is bytes /
// time; bus bandwidth is what a ring would put on each link: 2 (N-1)/N of that for an all-reduce,
// (N-1)/N for a reduce-scatter and an all-gather, 1 for a broadcast.
struct CommSpeed {
    const char* kind;
    size_t bytes;
    double seconds, bus_factor;
    bool of_library = false;
};
std::vector<CommSpeed> comm_speed(Comm& comm, size_t bytes);

// Both, up to max_bytes, and where there is one the library's collectives beside ours; the table
// goes to stdout. With `gpus` the values are checked between GPUs too, whose speed is then
// measured.
void selftest_comm(World& world, size_t max_bytes, bool gpus);
