// Where trace mode's counts are kept. Part of the runtime in every mode; filled by count.cpp.
#pragma once
#include <map>

#include "cusim/counters.h"

namespace cusim {

// One line of a kernel that accesses memory.
struct LineCounters {
    bool shared = false, store = false;
    int bytes = 0;  // of one thread's access
    uint64_t requests = 0, lanes = 0;
    uint64_t units = 0, ideal_units = 0;  // sectors of global memory, wavefronts of shared memory
};
struct KernelRecord {
    KernelCounters total;
    std::map<std::pair<uintptr_t, bool>, LineCounters> lines;  // by code address and kind of memory
};
struct CounterStore {
    std::map<const void*, KernelRecord> kernels;
    int reports = 0;
};
CounterStore& counter_store();
}  // namespace cusim
