// Device and pinned memory: allocations between guard pages, poison, and the checks on pointers.
#pragma once
#include <string>

#include "cusim/runtime.h"

namespace cusim {

struct Allocation {
    char* p;
    size_t bytes;
    MemoryKind kind;
    Where at;   // where it was allocated
    char* map;  // the mapping: guard page, data, canary, guard page
    size_t map_bytes;
    void *shadow = nullptr, *marks = nullptr;  // trace mode's
    bool is_device() const { return kind != MemoryKind::PinnedHost; }
};
// The live allocation that holds p; with or_end also one that ends at p.
const Allocation* allocation_at(const void* p, bool or_end = false);
// What p is, for a report: "device memory freed at f.cu:12", "not device memory".
std::string describe_pointer(const void* p);

// Aborts unless the bytes lie in one allocation of the side that is meant.
enum class Side { Device, Host };
void check_range(const void* p, size_t bytes, Side side, const char* what, Where at);

// Keeps the host from the whole pages of pinned memory that a copy not yet run reads (the host may
// not write them) or writes (it may not touch them).
void pinned_hold(const void* p, size_t bytes, bool copy_writes);
void pinned_release(const void* p, size_t bytes);

// While one lives, this thread may touch device memory; otherwise host code that does so faults.
class DeviceAccess {
  public:
    DeviceAccess();
    ~DeviceAccess();
    DeviceAccess(const DeviceAccess&) = delete;
};

// Makes faults on this OS thread's fibers reportable: they need a signal stack.
void fault_reports_enable();
}  // namespace cusim
