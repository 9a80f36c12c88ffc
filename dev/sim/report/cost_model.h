// The cost of each op's kernels without a GPU: bytes they move against the least possible, and how
// their accesses fit sectors and banks. Counted in SIM_MODE=trace, at GPT-2 124M's row width.
#pragma once
#include <string>
#include <vector>

#include "cusim/counters.h"

struct Cost {
    std::string op, type;
    double least = 0;          // bytes that must cross device memory: inputs once, outputs once
    bool memory_bound = true;  // so that `least` is a goal
    cusim::KernelCounters counted;
    double moved_over_least() const { return double(counted.moved()) / least; }
};
// What the project asks of memory-bound kernels.
constexpr double kMostMovedOverLeast = 1.05, kLeastSectorEfficiency = 0.95;

// Runs every op once in each type whose name contains `filter`.
std::vector<Cost> measure_costs(const std::string& filter);
