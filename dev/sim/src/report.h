// How the simulator says that something is wrong, and its environment variables.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "cusim/device.h"

namespace cusim {
// "  in kernel k <<<grid, block, smem>>> block (x,y,z) thread (x,y,z)", where a kernel runs.
void report_place();

// An environment variable as a number, or `fallback`.
long env_number(const char* name, long fallback);
// Values such as "rr", "rev", "rand:SEED".
struct Order {
    enum Kind { Forward, Reverse, Random } kind = Forward;
    uint64_t seed = 0;
};
Order env_order(const char* name);

// A small generator for the shuffled orders: the same seed gives the same run everywhere.
struct Random {
    uint64_t state = 0;
    uint32_t next();
    uint32_t below(uint32_t n) { return uint32_t(uint64_t(next()) * n >> 32); }
};

// Writes bytes without memset, which the tools intercept.
void fill_bytes(void* p, int value, size_t bytes);
}  // namespace cusim
