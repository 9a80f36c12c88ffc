// dev/sim: what trace mode counts, for tests and reports. In other modes nothing is counted.
//
// Counts, not times: they say how many bytes a kernel moves and how well its accesses fit the
// hardware's 32-byte sectors and 32 shared-memory banks.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace cusim {

struct KernelCounters {
    std::string kernel;
    uint64_t launches = 0, blocks = 0;
    // Global memory. Moved: distinct 32-byte sectors of each launch, the least that an ideal L2
    // leaves to DRAM. Requested: what the threads asked for, repeats included.
    uint64_t read_moved = 0, written_moved = 0;          // bytes
    uint64_t read_requested = 0, written_requested = 0;  // bytes
    uint64_t requests = 0;                               // one a warp and access
    uint64_t sectors = 0, ideal_sectors = 0;             // over all requests
    // Shared memory: one wavefront serves what lies in different banks (or in the same word).
    uint64_t shared_accesses = 0, wavefronts = 0, ideal_wavefronts = 0;

    uint64_t moved() const { return read_moved + written_moved; }
    double sector_efficiency() const {
        return sectors ? double(ideal_sectors) / double(sectors) : 1;
    }
    double conflicts_per_access() const {
        return shared_accesses ? double(wavefronts - ideal_wavefronts) / double(shared_accesses)
                               : 0;
    }
    void add(const KernelCounters& other);
};

bool counters_available();
void counters_reset();
std::vector<KernelCounters> counters();  // one a kernel, since the last reset
KernelCounters counters_total();
// The lines with the worst fit since the last reset, one text line each, for a human.
std::string counters_by_line(const std::string& kernel);

// Races, uninitialised reads, order-dependent sums reported so far.
int trace_reports();
}  // namespace cusim
