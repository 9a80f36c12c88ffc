// Inside trace mode: one access of one thread, and the two parts that look at it.
#pragma once
#include <cstdint>
#include <string>

#include "block.h"
#include "memory.h"
#include "trace.h"

namespace cusim {

// One place in the code that accesses one kind of memory. Its number fits the shadow's 16 bits.
struct SiteId {
    uint16_t number;
    uintptr_t pc;
};

struct Event {
    const char* p;
    unsigned bytes;
    Access kind;
    bool shared;                   // else global
    char* base;                    // of the variable or allocation
    void* shadow;                  // of its first byte
    const Allocation* allocation;  // null for shared memory
    SiteId site;
};
inline bool is_load(Access k) {
    return k == Access::Load || k == Access::AtomicLoad;
}
inline bool is_update(Access k) {
    return k == Access::AtomicUpdate || k == Access::FloatAtomic;
}
inline bool is_atomic(Access k) {
    return k == Access::AtomicLoad || k == Access::AtomicStore || is_update(k);
}

// Called by the instrumented code (hooks.cpp) and by the wrappers of wide accesses (device.h).
void trace_access(const void* p, unsigned bytes, Access kind, const void* pc);

void race_check(const Event& e);
void race_check_range(const Allocation& a, const char* p, size_t bytes, bool write);
void race_operation_begin(const Operation& operation);
void race_block_begin();
size_t shadow_bytes(size_t bytes);  // of a range of so many bytes

void count_access(const Event& e);
void count_block_end();
void count_kernel_end();
size_t mark_bytes(size_t bytes);  // what the counters keep beside a range of so many bytes

// Prints one report, once for each pair of places. `other` may be 0.
void trace_report(const char* what, const Event& e, uintptr_t other, const std::string& detail);
uintptr_t site_pc(uint16_t number);
}  // namespace cusim
