// Trace mode: where the accesses of kernels arrive, and the reports.
//
// The .cu files are compiled with -fsanitize=thread, whose instrumentation calls a function at
// every load and store; the program is linked with hooks.cpp instead of the sanitizer's runtime.
// Each access goes to the checker (race.cpp) and to the counters (counters.cpp).
#include "trace.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <unordered_map>

#include "counters.h"
#include "report.h"
#include "trace_access.h"

extern "C" char __executable_start, _end;

namespace cusim {
namespace {

pthread_t kernel_thread;  // the OS thread that runs the block

// ---- places in the code

std::vector<uintptr_t>& sites() {
    static auto* const all = new std::vector<uintptr_t>(1, 0);  // number 0: none
    return *all;
}
SiteId site_of(uintptr_t pc) {
    static auto* const numbers = new std::unordered_map<uintptr_t, uint16_t>;
    static SiteId last{0, 0};
    if (last.pc == pc && pc) return last;
    auto found = numbers->find(pc);
    if (found == numbers->end()) {
        if (sites().size() > 0xffff) fail("more than 65535 accesses in the code");
        found = numbers->emplace(pc, uint16_t(sites().size())).first;
        sites().push_back(pc);
    }
    return last = {found->second, pc};
}

// ---- places in memory

char* map_zeroed(size_t bytes) {
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) fail("trace mode: no memory for the shadow of %zu bytes", bytes);
    return static_cast<char*>(p);
}

bool in_program(const void* p) {
    return p >= &__executable_start && p < &_end;
}

// A shared variable's shadow lives as long as the program.
void* shared_shadow(const SharedVariable* v) {
    static auto* const shadows = new std::unordered_map<const SharedVariable*, char*>;
    char*& shadow = (*shadows)[v];
    if (!shadow) shadow = map_zeroed(shadow_bytes(v->bytes));
    return shadow;
}
void* dynamic_shadow() {
    static char* const shadow = map_zeroed(shadow_bytes(256 * 1024));
    return shadow;
}

// Fills in what the address belongs to; false for memory that no other thread can see.
bool locate(Event& e) {
    const char* p = e.p;
    if (stack_holds(p)) return false;
    if (in_program(p)) {  // shared variables, constants, built-in variables
        const SharedVariable* v = shared_variable_at(p);
        if (!v) return false;
        e.shared = true;
        e.base = v->p;
        e.shadow = shared_shadow(v);
        return true;
    }
    if (p >= block.dynamic_smem && p < block.dynamic_smem + block.launch.smem) {
        e.shared = true;
        e.base = block.dynamic_smem;
        e.shadow = dynamic_shadow();
        return true;
    }
    e.allocation = allocation_at(p);
    if (!e.allocation || !e.allocation->is_device()) {
        if (!is_load(e.kind)) trace_report("a kernel writes host memory", e, 0, "");
        return false;
    }
    e.base = e.allocation->p;
    e.shadow = e.allocation->shadow;
    return true;
}

std::string name_of(const Event& e) {
    if (!e.shared) {
        if (!e.allocation) return "host memory";
        return "device memory allocated at " + std::string(e.allocation->at.file) + ":" +
               std::to_string(e.allocation->at.line) + ", offset " + std::to_string(e.p - e.base);
    }
    const SharedVariable* v = shared_variable_at(e.p);
    return "shared memory " + (v ? v->name : "(dynamic)") + ", offset " +
           std::to_string(e.p - e.base);
}

// Like a sanitizer: a program with reports does not end with success.
void at_end() {
    const int reports = counter_store().reports;
    if (reports == 0) return;
    fprintf(stderr, "==cusim== %d report(s)\n", reports);
    fflush(stdout);
    _exit(66);
}

}  // namespace

uintptr_t site_pc(uint16_t number) {
    return sites()[number];
}

// A report uses std::string, of which the linker may have picked the instrumented instance.
static bool reporting = false;

void trace_report(const char* what, const Event& e, uintptr_t other, const std::string& detail) {
    if (reporting) return;
    reporting = true;
    static auto* const seen = new std::set<std::pair<uintptr_t, uintptr_t>>;
    static const bool registered = atexit(at_end) == 0;
    (void)registered;
    if (!seen->insert({e.site.pc, other}).second) {
        reporting = false;
        return;
    }
    counter_store().reports++;
    fprintf(stderr, "==cusim== %s: %s\n", what, name_of(e).c_str());
    if (e.site.pc) fprintf(stderr, "  at %s\n", source_line(e.site.pc).c_str());
    if (other) fprintf(stderr, "  against %s\n", source_line(other).c_str());
    if (!detail.empty()) fprintf(stderr, "  %s\n", detail.c_str());
    report_place();
    reporting = false;
}

void trace_access(const void* p, unsigned bytes, Access kind, const void* pc) {
    if (reporting || !block.current || !pthread_equal(pthread_self(), kernel_thread)) return;
    Event e{};
    e.p = static_cast<const char*>(p);
    e.bytes = bytes;
    e.kind = kind;
    e.site.pc = reinterpret_cast<uintptr_t>(pc);
    if (!locate(e)) return;
    e.site = site_of(e.site.pc);
    race_check(e);
    if (kind != Access::CopyLanding) count_access(e);  // counted when it was issued
}

void trace_operation_begin(const Operation& operation) {
    race_operation_begin(operation);
}
void trace_block_begin() {
    kernel_thread = pthread_self();
    race_block_begin();
}
void trace_block_end() {
    count_block_end();
}
void trace_kernel_end() {
    count_kernel_end();
}

void trace_range(const void* p, size_t bytes, bool write, const char*) {
    const Allocation* a = allocation_at(p);
    if (a && a->is_device() && bytes > 0)
        race_check_range(*a, static_cast<const char*>(p), bytes, write);
}

void trace_allocated(Allocation& a) {
    a.shadow = map_zeroed(shadow_bytes(a.bytes));
    a.marks = map_zeroed(mark_bytes(a.bytes));
}
void trace_freed(const Allocation& a) {
    munmap(a.shadow, shadow_bytes(a.bytes));
    munmap(a.marks, mark_bytes(a.bytes));
}

}  // namespace cusim
