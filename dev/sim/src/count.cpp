// Trace mode's counters: how the accesses of a warp fit 32-byte sectors and 32 banks.
//
// Lanes run one after another, so a warp's access is put together again: the n-th time that each
// lane comes by a place in the code belongs to one request. When a block ends its requests are
// tallied.
#include <algorithm>
#include <memory>
#include <vector>

#include "counters.h"
#include "report.h"
#include "trace_access.h"

namespace cusim {
namespace {

constexpr uintptr_t kSector = 32, kBankWidth = 4;
constexpr unsigned kBanks = 32;

struct Request {
    uint32_t lanes = 0;
    uintptr_t address[kWarp];
};
// What the block that runs did at one place in the code, with one kind of memory.
struct SiteRun {
    uintptr_t pc;
    bool shared, store;
    unsigned bytes;
    bool active = false;
    uint32_t executions[kMaxThreads] = {};
    std::vector<Request> requests[kMaxWarps];
};
std::vector<std::unique_ptr<SiteRun>> runs[2];  // by site, for global and shared memory
std::vector<SiteRun*> active;                   // in this block

SiteRun& run_of(const Event& e) {
    auto& all = runs[e.shared];
    if (all.size() <= e.site.number) all.resize(e.site.number + 1u);
    std::unique_ptr<SiteRun>& r = all[e.site.number];
    if (!r) {
        r = std::make_unique<SiteRun>();
        r->pc = e.site.pc;
        r->shared = e.shared;
        r->store = !is_load(e.kind);
        r->bytes = e.bytes;
    }
    return *r;
}

// ---- distinct sectors of a launch

uint32_t launch_number = 1;
struct Marks {
    uint32_t read, written;  // the launch that did so last
};
void mark_sectors(const Event& e, KernelCounters& total) {
    auto* marks = static_cast<Marks*>(e.allocation->marks);
    const bool store = !is_load(e.kind), load = is_load(e.kind) || is_update(e.kind);
    // Sectors counted from the allocation's start, which is aligned to 256 bytes.
    for (uintptr_t s = uintptr_t(e.p - e.base) / kSector;
         s <= uintptr_t(e.p - e.base + e.bytes - 1) / kSector; s++) {
        if (load && marks[s].read != launch_number && marks[s].written != launch_number)
            total.read_moved += kSector;
        if (load) marks[s].read = launch_number;
        if (store && marks[s].written != launch_number) total.written_moved += kSector;
        if (store) marks[s].written = launch_number;
    }
}

// ---- tallies of one request

size_t distinct(uintptr_t* begin, uintptr_t* end) {
    std::sort(begin, end);
    return size_t(std::unique(begin, end) - begin);
}
// Sectors touched, and the fewest that could hold as many different bytes.
std::pair<uint64_t, uint64_t> tally_global(const Request& q, unsigned bytes) {
    uintptr_t sectors[kWarp * 2 + kWarp], addresses[kWarp];
    size_t n = 0, m = 0;
    for (uint32_t lanes = q.lanes; lanes; lanes &= lanes - 1) {
        const uintptr_t a = q.address[__builtin_ctz(lanes)];
        addresses[m++] = a;
        for (uintptr_t s = a / kSector; s <= (a + bytes - 1) / kSector && n < std::size(sectors);
             s++)
            sectors[n++] = s;
    }
    const uint64_t used = distinct(sectors, sectors + n);
    const uint64_t ideal = (distinct(addresses, addresses + m) * bytes + kSector - 1) / kSector;
    return {used, std::min(used, ideal)};
}
// The hardware serves 32 lanes of 4 bytes, 16 of 8 or 8 of 16 together: as many wavefronts as the
// busiest bank has different words.
std::pair<uint64_t, uint64_t> tally_shared(const Request& q, unsigned bytes) {
    const unsigned group = bytes <= 4 ? 32 : bytes == 8 ? 16 : 8;
    uint64_t wavefronts = 0, ideal = 0;
    for (unsigned first = 0; first < kWarp; first += group) {
        uintptr_t words[kWarp * 4];
        size_t n = 0;
        for (unsigned lane = first; lane < first + group; lane++) {
            if (!(q.lanes >> lane & 1)) continue;
            for (unsigned k = 0; k < std::max(1u, bytes / unsigned(kBankWidth)); k++)
                words[n++] = q.address[lane] / kBankWidth + k;
        }
        if (n == 0) continue;
        n = distinct(words, words + n);
        unsigned load[kBanks] = {};
        for (size_t i = 0; i < n; i++) load[words[i] % kBanks]++;
        wavefronts += *std::max_element(load, load + kBanks);
        ideal += (n + kBanks - 1) / kBanks;
    }
    return {wavefronts, ideal};
}

void tally(const SiteRun& r, const Request& q, KernelRecord& record) {
    const auto [units, ideal] = r.shared ? tally_shared(q, r.bytes) : tally_global(q, r.bytes);
    const uint64_t lanes = uint64_t(__builtin_popcount(q.lanes));
    LineCounters& line = record.lines[{r.pc, r.shared}];
    line.shared = r.shared;
    line.store = r.store;
    line.bytes = int(r.bytes);
    line.requests++;
    line.lanes += lanes;
    line.units += units;
    line.ideal_units += ideal;
    KernelCounters& total = record.total;
    if (r.shared) {
        total.shared_accesses++;
        total.wavefronts += units;
        total.ideal_wavefronts += ideal;
    } else {
        (r.store ? total.written_requested : total.read_requested) += lanes * r.bytes;
        total.requests++;
        total.sectors += units;
        total.ideal_sectors += ideal;
    }
}

}  // namespace

size_t mark_bytes(size_t bytes) {
    return (bytes / kSector + 1) * sizeof(Marks);
}

void count_access(const Event& e) {
    const Thread& t = *block.current;
    SiteRun& r = run_of(e);
    if (!r.active) active.push_back(&r);
    r.active = true;
    const uint32_t k = r.executions[t.linear]++;
    std::vector<Request>& requests = r.requests[t.warp];
    if (requests.size() <= k) requests.resize(k + 1);
    requests[k].lanes |= 1u << t.lane;
    requests[k].address[t.lane] = reinterpret_cast<uintptr_t>(e.p);
    if (!e.shared) mark_sectors(e, counter_store().kernels[block.launch.kernel].total);
}

void count_block_end() {
    KernelRecord& record = counter_store().kernels[block.launch.kernel];
    record.total.blocks++;
    for (SiteRun* r : active) {
        for (std::vector<Request>& requests : r->requests) {
            for (const Request& q : requests) tally(*r, q, record);
            requests.clear();
        }
        r->active = false;
        std::fill(std::begin(r->executions), std::end(r->executions), 0u);
    }
    active.clear();
}
void count_kernel_end() {
    counter_store().kernels[block.launch.kernel].total.launches++;
    launch_number++;
}

}  // namespace cusim
