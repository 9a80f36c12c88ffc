// The cost of each op's kernels without a GPU: bytes they move against the least possible, and how
// their accesses fit sectors and banks. Counted in SIM_MODE=trace, at GPT-2 124M's sizes.
#pragma once
#include <string>
#include <vector>

#include "cusim/counters.h"

// What an op's kernels may cost; the defaults are what memory-bound kernels have to reach. `why`
// says why a row asks for less.
struct Goal {
    double moved_over_least = 1.05, sector_efficiency = 0.95, conflicts_per_access = 0;
    std::string why;
};
struct Cost {
    std::string op, type;
    double least = 0;  // bytes that must cross device memory: inputs once, outputs once
    Goal goal;
    cusim::KernelCounters counted;
    double moved_over_least() const { return double(counted.moved()) / least; }
};

// Runs every op whose name contains `filter` once in each type; rows of `width` channels (768:
// GPT-2 124M; hardly a share depends on it, but the time does).
std::vector<Cost> measure_costs(const std::string& filter, int width);
