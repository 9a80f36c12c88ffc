// What the runtime tells trace mode. Weak: outside trace mode these are null.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sanitizer.h"

namespace cusim {

// One operation of a stream (a kernel, a copy, a library call). `seen[s]` is how many operations of
// stream s are known to be over before this one starts, by events and synchronisation.
struct Operation {
    const char* what = "";
    unsigned stream = 0;
    uint64_t number = 0;  // within its stream, from 1
    std::vector<uint64_t> seen;
};
struct Allocation;

CUSIM_WEAK void trace_operation_begin(const Operation& operation);
CUSIM_WEAK void trace_block_begin();
CUSIM_WEAK void trace_block_end();
CUSIM_WEAK void trace_kernel_end();
// The lanes' earlier accesses are ordered before the later accesses of all of them.
CUSIM_WEAK void trace_warp_fence(int warp, unsigned lanes);
// The running operation touches a whole range of device memory.
CUSIM_WEAK void trace_range(const void* p, size_t bytes, bool write, const char* what);
CUSIM_WEAK void trace_allocated(Allocation& a);
CUSIM_WEAK void trace_freed(const Allocation& a);

inline const bool kTrace = trace_operation_begin != nullptr;
}  // namespace cusim
