// Device and pinned memory: allocations between guard pages, poison, and the checks on pointers.
//
// Fresh memory is all ones: NaN in fp32 and bf16, an absurd index as an integer. Data ends at a
// guard page (up to the rounding to 256 bytes, which holds a canary that cudaFree checks), and a
// freed mapping stays reserved, so a stale pointer cannot meet a newer allocation. Host code is
// kept out by a memory protection key, or where the processor has none by page protection.
#include "memory.h"

#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <vector>

#include "api.h"
#include "block.h"
#include "fiber.h"
#include "report.h"
#include "sanitizer.h"
#include "stream.h"
#include "trace.h"

namespace cusim {
namespace {

constexpr size_t kPage = 4096, kRounding = 256;
constexpr int kPoison = 0xff;
size_t rounded(size_t bytes, size_t unit) {
    return std::max<size_t>(1, (bytes + unit - 1) / unit) * unit;
}

// Sorted by address. Not std::map, whose code in the library the memory sanitizer cannot see.
std::vector<Allocation>& allocations() {
    static auto* const all = new std::vector<Allocation>;
    return *all;
}
std::vector<Allocation>::iterator first_above(const void* p) {
    auto& all = allocations();
    return std::upper_bound(all.begin(), all.end(), p,
                            [](const void* x, const Allocation& a) { return x < a.p; });
}
size_t device_bytes;

struct Freed {
    Allocation allocation;
    Where at;
};
std::deque<Freed>& freed() {
    static auto* const all = new std::deque<Freed>;
    return *all;
}
constexpr size_t kKeptMappings = 4096;

// ---- keeping the host out

enum class Guard { None, Key, Pages };
int protection_key = -1;

Guard choose_guard() {
    if (kHeapMemory) return Guard::None;
    const char* wish = getenv("CUSIM_GUARD");
    if (wish && !strcmp(wish, "none")) return Guard::None;
    if (!wish || !strcmp(wish, "key")) {
        protection_key = pkey_alloc(0, PKEY_DISABLE_ACCESS);
        if (protection_key > 0) return Guard::Key;
        if (wish) fail("CUSIM_GUARD=key: this machine has no memory protection keys");
    } else if (strcmp(wish, "pages")) {
        fail("CUSIM_GUARD=%s: expected key, pages or none", wish);
    }
    return Guard::Pages;
}
Guard guard() {
    static const Guard chosen = choose_guard();
    return chosen;
}

char* body_of(const Allocation& a) {
    return a.map + kPage;
}
size_t body_bytes(const Allocation& a) {
    return a.map_bytes - 2 * kPage;
}

int access_depth;  // under the API lock
void open_to_host(bool open) {
    if (guard() == Guard::Key) {
        pkey_set(protection_key, open ? 0 : PKEY_DISABLE_ACCESS);
    } else if (guard() == Guard::Pages) {
        for (const Allocation& a : allocations())
            if (a.kind == MemoryKind::Device)
                mprotect(body_of(a), body_bytes(a), open ? PROT_READ | PROT_WRITE : PROT_NONE);
    }
}

// ---- faults

// Explains a fault in the simulator's memory. On return the access faults again, now with the
// default action, so that a debugger stops at it.
void on_fault(int, siginfo_t* info, void*) {
    const char* p = static_cast<char*>(info->si_addr);
    fprintf(stderr, "\n==cusim== ERROR: invalid access to %p\n", static_cast<const void*>(p));
    const Allocation* near = nullptr;
    for (const Allocation& a : allocations())
        if (p >= a.map && p < a.map + a.map_bytes) near = &a;
    const char* smem = block.dynamic_smem;
    if (near && p >= near->p && p < near->p + near->bytes) {
        fprintf(
            stderr, "  host code touched %s, offset %td of %zu bytes allocated at %s:%d\n",
            near->is_device() ? "device memory" : "pinned memory that a copy not waited for uses",
            p - near->p, near->bytes, near->at.file, near->at.line);
    } else if (near) {
        const bool before = p < near->p;
        fprintf(stderr, "  %td bytes %s an allocation of %zu bytes made at %s:%d\n",
                before ? near->p - p : p - near->p - ptrdiff_t(near->bytes) + 1,
                before ? "before" : "past the end of", near->bytes, near->at.file, near->at.line);
    } else if (stack_guard_holds(p)) {
        fprintf(stderr, "  a thread's stack overflowed (CUSIM_STACK_KB enlarges it)\n");
    } else if (block.running && smem && p >= smem && p < smem + block.launch.smem + 2 * kPage) {
        fprintf(stderr, "  %td bytes past the end of %zu bytes of dynamic shared memory\n",
                p - smem - ptrdiff_t(block.launch.smem) + 1, block.launch.smem);
    } else {
        fprintf(stderr, "  %s\n", describe_pointer(p).c_str());
    }
    report_place();
    signal(SIGSEGV, SIG_DFL);
}

void install_fault_handler() {
    struct sigaction action {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, nullptr);
}

// ---- the two ways to get memory

Allocation map_allocation(size_t bytes, MemoryKind kind, Where at) {
    Allocation a{nullptr, bytes, kind, at, nullptr, 0};
    const size_t data = rounded(bytes, kRounding), body = rounded(data, kPage);
    a.map_bytes = body + 2 * kPage;
    void* map =
        mmap(nullptr, a.map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) return a;
    a.map = static_cast<char*>(map);
    a.p = a.map + kPage + body - data;
    if (guard() == Guard::Key && kind == MemoryKind::Device)
        pkey_mprotect(a.map + kPage, body, PROT_READ | PROT_WRITE, protection_key);
    else
        mprotect(a.map + kPage, body, PROT_READ | PROT_WRITE);
    return a;
}
Allocation heap_allocation(size_t bytes, MemoryKind kind, Where at) {
    Allocation a{nullptr, bytes, kind, at, nullptr, bytes};
    void* p = nullptr;
    if (posix_memalign(&p, kRounding, std::max<size_t>(bytes, 1)) == 0)
        a.p = a.map = static_cast<char*>(p);
    return a;
}

void check_canary(const Allocation& a) {
    const DeviceAccess access;
    const auto* end = reinterpret_cast<unsigned char*>(a.p) + rounded(a.bytes, kRounding);
    for (auto* c = reinterpret_cast<unsigned char*>(a.p) + a.bytes; c < end; c++)
        if (*c != kPoison)
            fail(
                "a kernel wrote %td bytes past the end of %zu bytes allocated at %s:%d (found when "
                "they were freed)",
                c - reinterpret_cast<unsigned char*>(a.p) - ptrdiff_t(a.bytes) + 1, a.bytes,
                a.at.file, a.at.line);
}

void release(const Allocation& a, Where at) {
    if (kHeapMemory) {
        free(a.map);
    } else {
        check_canary(a);
        // The pages go, the addresses stay taken.
        mprotect(a.map, a.map_bytes, PROT_NONE);
        madvise(a.map, a.map_bytes, MADV_DONTNEED);
    }
    freed().push_back({a, at});
    if (freed().size() <= kKeptMappings) return;
    if (!kHeapMemory) munmap(freed().front().allocation.map, freed().front().allocation.map_bytes);
    freed().pop_front();
}

}  // namespace

const Allocation* allocation_at(const void* p, bool or_end) {
    auto next = first_above(p);
    if (next == allocations().begin()) return nullptr;
    const Allocation& a = *--next;
    return static_cast<const char*>(p) < a.p + a.bytes + or_end ? &a : nullptr;
}

std::string describe_pointer(const void* p) {
    char text[512];
    const char* c = static_cast<const char*>(p);
    for (auto f = freed().rbegin(); f != freed().rend(); ++f) {
        const Allocation& a = f->allocation;
        if (c < a.p || c >= a.p + std::max<size_t>(a.bytes, 1)) continue;
        snprintf(text, sizeof text,
                 "memory freed at %s:%d (offset %td of %zu bytes allocated at %s:%d)", f->at.file,
                 f->at.line, c - a.p, a.bytes, a.at.file, a.at.line);
        return text;
    }
    return "not device memory";
}

void check_range(const void* p, size_t bytes, Side side, const char* what, Where at) {
    const Allocation* a = allocation_at(p);
    if (side == Side::Device && !(a && a->is_device()))
        fail("%s at %s:%d: %p is %s", what, at.file, at.line, p, describe_pointer(p).c_str());
    if (side == Side::Host && a && a->kind == MemoryKind::Device)
        fail("%s at %s:%d: %p is device memory, the kind of the copy says host", what, at.file,
             at.line, p);
    if (a && static_cast<const char*>(p) + bytes > a->p + a->bytes)
        fail(
            "%s at %s:%d: %zu bytes at offset %td overrun an allocation of %zu bytes made at %s:%d",
            what, at.file, at.line, bytes, static_cast<const char*>(p) - a->p, a->bytes, a->at.file,
            a->at.line);
}

static void pinned_protect(const void* p, size_t bytes, int protection) {
    if (kHeapMemory) return;
    const auto begin = (reinterpret_cast<uintptr_t>(p) + kPage - 1) / kPage * kPage;
    const auto end = (reinterpret_cast<uintptr_t>(p) + bytes) / kPage * kPage;
    if (begin < end) mprotect(reinterpret_cast<void*>(begin), end - begin, protection);
}
void pinned_hold(const void* p, size_t bytes, bool copy_writes) {
    pinned_protect(p, bytes, copy_writes ? PROT_NONE : PROT_READ);
}
void pinned_release(const void* p, size_t bytes) {
    pinned_protect(p, bytes, PROT_READ | PROT_WRITE);
}

DeviceAccess::DeviceAccess() {
    if (access_depth++ == 0) open_to_host(true);
}
DeviceAccess::~DeviceAccess() {
    if (--access_depth == 0) open_to_host(false);
}

void fault_reports_enable() {
    if (kHeapMemory) return;
    static const bool installed = (install_fault_handler(), true);
    (void)installed;
    static thread_local bool ready = false;
    if (ready) return;
    ready = true;
    constexpr size_t kBytes = 64 * 1024;
    stack_t stack{};
    stack.ss_sp = malloc(kBytes);  // as long-lived as the thread
    stack.ss_size = kBytes;
    sigaltstack(&stack, nullptr);
}

cudaError_t memory_alloc(void** out, size_t bytes, MemoryKind kind, Where at) {
    const ApiLock lock;
    fault_reports_enable();
    if (const cudaError_t error = device_error()) return error;
    const bool device = kind == MemoryKind::Device;
    if (device && device_bytes + bytes > device_properties().totalGlobalMem)
        return cudaErrorMemoryAllocation;
    Allocation a = kHeapMemory ? heap_allocation(bytes, kind, at) : map_allocation(bytes, kind, at);
    if (!a.p) return cudaErrorMemoryAllocation;
    if (!kMsan) {
        const DeviceAccess access;
        fill_bytes(a.p, kPoison, kHeapMemory ? bytes : rounded(bytes, kRounding));
    }
    if (kTrace) trace_allocated(a);
    allocations().insert(first_above(a.p), a);
    if (device) device_bytes += bytes;
    if (device && guard() == Guard::Pages) mprotect(body_of(a), body_bytes(a), PROT_NONE);
    *out = a.p;
    return cudaSuccess;
}

}  // namespace cusim

using namespace cusim;

cudaError_t cudaFree(void* p, Where at) {
    const ApiLock lock;
    if (!p) return cudaSuccess;
    if (const cudaError_t error = cudaDeviceSynchronize()) return error;
    auto found = first_above(p);
    if (found == allocations().begin() || (--found)->p != p)
        fail("cudaFree at %s:%d: %p is %s", at.file, at.line, p, describe_pointer(p).c_str());
    const Allocation a = *found;
    if (a.kind == MemoryKind::Device) device_bytes -= a.bytes;
    if (kTrace) trace_freed(a);
    release(a, at);  // still registered: its pages must open for the look at the canary
    allocations().erase(first_above(p) - 1);
    return cudaSuccess;
}
cudaError_t cudaFreeHost(void* p, Where at) {
    return cudaFree(p, at);
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
    const ApiLock lock;
    *total_bytes = device_properties().totalGlobalMem;
    *free_bytes = *total_bytes - device_bytes;
    return device_error();
}
