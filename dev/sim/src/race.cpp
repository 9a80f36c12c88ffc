// Trace mode's checker: races, reads of what was never written, reads of a copy in flight, sums
// whose value depends on the order of threads.
//
// For each two bytes of memory the shadow keeps who wrote last and who read last. Whether that was
// ordered before the access at hand is decided by CUDA's own rules: the same thread; an earlier
// phase between block barriers; a __syncwarp of both lanes; another operation that a stream, an
// event or the host puts before this one. Between blocks of one launch only atomics are safe.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "report.h"
#include "trace_access.h"

namespace cusim {
namespace {

enum Flag : uint8_t {
    kAtomic = 1,
    kManyWarps = 2,   // of one block read it
    kManyBlocks = 4,  // of one launch read it
    kInFlight = 8,    // the target of a cp.async that nobody has waited for
    kFloatAtomic = 16,
};
struct Stamp {
    uint32_t serial;  // of the block or operation; 0: never
    uint32_t lanes;   // of `warp`
    uint16_t phase, tick;
    uint8_t warp, flags;
    uint16_t site;
};
struct Cell {
    Stamp write, read;
};
constexpr size_t kGranule = 2;  // bytes a cell

// ---- operations and blocks, numbered in the order in which they run

struct Started {
    uint32_t first_serial;
    unsigned stream;
    uint64_t number;
    const char* what;
};
std::vector<Started>& operations() {
    static auto* const all = new std::vector<Started>;
    return *all;
}
Operation current;
uint32_t serial;  // of the block or operation that runs

const Started& operation_of(uint32_t at) {
    auto& all = operations();
    auto next = std::upper_bound(all.begin(), all.end(), at,
                                 [](uint32_t s, const Started& o) { return s < o.first_serial; });
    return *--next;
}
bool operation_ordered(const Started& earlier) {
    if (earlier.stream == current.stream) return true;
    return earlier.stream < current.seen.size() && current.seen[earlier.stream] >= earlier.number;
}

// ---- lanes of a warp: a vector clock each. A warp's tick counts its fences; an access carries the
// tick at which it happened, and lane i has seen lane j's accesses up to tick seen[i][j].

struct WarpClock {
    uint16_t tick;
    uint16_t seen[kWarp][kWarp];
};
WarpClock clocks[kMaxWarps];

Stamp stamp_now(const Event& e, uint8_t flags) {
    const Thread& t = *block.current;
    return {
        serial, 1u << t.lane, uint16_t(block.barrier.phase), clocks[t.warp].tick, uint8_t(t.warp),
        flags,  e.site.number};
}

// Did what `a` stands for happen before the current thread's access, by CUDA's rules?
bool ordered(const Stamp& a, bool shared) {
    if (a.serial == 0) return true;
    const Thread& t = *block.current;
    if (a.serial < operations().back().first_serial)
        return shared || operation_ordered(operation_of(a.serial));
    if (a.flags & kManyBlocks) return false;
    if (a.serial != serial) return shared;  // another block of this launch
    if (a.phase != uint16_t(block.barrier.phase)) return true;
    if (a.flags & kManyWarps) return false;
    if (a.warp != t.warp) return a.lanes == 0;
    const uint16_t* seen = clocks[t.warp].seen[t.lane];
    for (uint32_t lanes = a.lanes & ~(1u << t.lane); lanes; lanes &= lanes - 1)
        if (seen[__builtin_ctz(lanes)] < a.tick) return false;
    return true;
}

// The stamp of several readers that are not ordered among each other.
Stamp merged(const Stamp& old, const Stamp& now) {
    Stamp m = now;
    m.flags |= old.flags & (kManyWarps | kManyBlocks);
    if (!(old.flags & kAtomic)) m.flags &= uint8_t(~kAtomic);
    if (old.serial != now.serial)
        m.flags |= kManyBlocks;
    else if (old.warp != now.warp)
        m.flags |= kManyWarps;
    else
        m.lanes |= old.lanes, m.tick = std::max(old.tick, now.tick);
    return m;
}

std::string when(const Stamp& a) {
    if (a.serial < operations().back().first_serial) {
        const Started& o = operation_of(a.serial);
        return "the other access was in " + std::string(o.what) + " on stream " +
               std::to_string(o.stream) + ", and no event or synchronisation orders the two";
    }
    if (a.serial != serial || (a.flags & kManyBlocks)) return "between two blocks of the launch";
    if ((a.flags & kManyWarps) || a.warp != block.current->warp)
        return "between two warps of the block, without a barrier";
    return "between two lanes of a warp, without a __syncwarp of both";
}

void check_cell(const Event& e, Cell& c) {
    const bool atomic = is_atomic(e.kind), load = is_load(e.kind);
    const uint32_t written_since = e.shared ? serial : 1;  // shared memory is new in each block
    auto conflict = [&](const Stamp& other, const char* what) {
        if (ordered(other, e.shared) || (atomic && (other.flags & kAtomic))) return;
        trace_report(what, e, site_pc(other.site), when(other));
    };
    if (c.write.serial < written_since && (load || is_update(e.kind))) {
        trace_report("READ OF UNINITIALISED MEMORY", e, 0, "");
    } else {
        const bool in_flight = c.write.flags & kInFlight && c.write.serial == serial;
        if (in_flight && e.kind != Access::CopyLanding)
            trace_report("ACCESS TO THE TARGET OF A cp.async BEFORE ITS WAIT", e,
                         site_pc(c.write.site), "");
        else
            conflict(c.write, load ? "RACE (read after write)" : "RACE (write after write)");
    }
    if (e.kind == Access::FloatAtomic && (c.write.flags & kFloatAtomic) &&
        c.write.serial >= operations().back().first_serial &&
        (c.write.serial != serial || c.write.warp != block.current->warp ||
         c.write.lanes != 1u << block.current->lane))
        trace_report("ORDER-DEPENDENT SUM (floating-point atomicAdd by several threads)", e, 0, "");
    if (!load) conflict(c.read, "RACE (write after read)");

    if (load) {
        const Stamp now = stamp_now(e, atomic ? kAtomic : 0);
        c.read = ordered(c.read, e.shared) ? now : merged(c.read, now);
    } else {
        c.write = stamp_now(
            e, uint8_t((atomic ? kAtomic : 0) | (e.kind == Access::FloatAtomic ? kFloatAtomic : 0) |
                       (e.kind == Access::CopyIssue ? kInFlight : 0)));
    }
}

}  // namespace

size_t shadow_bytes(size_t bytes) {
    return (bytes / kGranule + 1) * sizeof(Cell);
}

void race_check(const Event& e) {
    auto* cells = static_cast<Cell*>(e.shadow);
    const size_t first = size_t(e.p - e.base) / kGranule;
    const size_t last = size_t(e.p - e.base + e.bytes - 1) / kGranule;
    for (size_t i = first; i <= last; i++) check_cell(e, cells[i]);
}

void race_operation_begin(const Operation& operation) {
    current = operation;
    serial++;
    operations().push_back({serial, operation.stream, operation.number, operation.what});
}
void race_block_begin() {
    serial++;
    for (int w = 0; w * kWarp < block.threads; w++) {
        memset(clocks[w].seen, 0, sizeof clocks[w].seen);
        clocks[w].tick = 1;
    }
}

void trace_warp_fence(int warp, unsigned lanes) {
    WarpClock& c = clocks[warp];
    uint16_t all[kWarp] = {};
    for (unsigned left = lanes; left; left &= left - 1) {
        const uint16_t* seen = c.seen[__builtin_ctz(left)];
        for (int k = 0; k < kWarp; k++) all[k] = std::max(all[k], seen[k]);
    }
    for (unsigned left = lanes; left; left &= left - 1) all[__builtin_ctz(left)] = c.tick;
    for (unsigned left = lanes; left; left &= left - 1)
        memcpy(c.seen[__builtin_ctz(left)], all, sizeof all);
    c.tick++;
}

// A copy or a library call, as one access of the operation: against other operations only.
void race_check_range(const Allocation& a, const char* p, size_t bytes, bool write) {
    auto* cells = static_cast<Cell*>(a.shadow);
    Event e{};
    e.p = p;
    e.base = a.p;
    e.allocation = &a;
    const Stamp now{serial, 0, 0, 0, 0, 0, 0};
    uint32_t harmless = 0;  // neighbours mostly come from the same earlier access
    auto conflict = [&](const Stamp& other, size_t cell, const char* what) {
        if (other.serial == 0 || other.serial == harmless) return;
        if (other.serial >= operations().back().first_serial) return;
        const Started& o = operation_of(other.serial);
        if (operation_ordered(o)) {
            harmless = other.serial;
            return;
        }
        e.p = a.p + cell * kGranule;
        trace_report(what, e, site_pc(other.site),
                     "in " + std::string(current.what) + " on stream " +
                         std::to_string(current.stream) + "; " + when(other));
    };
    for (size_t i = size_t(p - a.p) / kGranule; i <= size_t(p - a.p + bytes - 1) / kGranule; i++) {
        Cell& c = cells[i];
        conflict(c.write, i, write ? "RACE (write after write)" : "RACE (read after write)");
        if (write) conflict(c.read, i, "RACE (write after read)");
        (write ? c.write : c.read) = now;
    }
}

}  // namespace cusim
