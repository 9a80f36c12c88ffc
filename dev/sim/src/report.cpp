// How the simulator says that something is wrong, and its environment variables.
#include "report.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "block.h"
#include "symbols.h"

namespace cusim {

void report_place() {
    if (!block.running) return;
    const Launch& l = block.launch;
    fprintf(stderr, "  in kernel %s <<<(%u,%u,%u), (%u,%u,%u), %zu>>> block (%u,%u,%u)",
            kernel_info(l.kernel).name.c_str(), l.grid.x, l.grid.y, l.grid.z, l.block.x, l.block.y,
            l.block.z, l.smem, blockIdx.x, blockIdx.y, blockIdx.z);
    if (block.current) {
        const uint3 t = block.current->index;
        fprintf(stderr, " thread (%u,%u,%u)", t.x, t.y, t.z);
    }
    fputc('\n', stderr);
}

void fail(const char* format, ...) {
    fflush(stdout);
    fprintf(stderr, "\n==cusim== ERROR: ");
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    report_place();
    fflush(stderr);
    abort();
}

// The sanitizers call these when they report: their stacks name the code, we name the CUDA thread.
extern "C" void __asan_on_error() {
    report_place();
}
extern "C" void __ubsan_on_report() {
    report_place();
}

long env_number(const char* name, long fallback) {
    const char* value = getenv(name);
    return value ? atol(value) : fallback;
}

Order env_order(const char* name) {
    const char* value = getenv(name);
    Order order;
    if (!value || !strcmp(value, "rr")) return order;
    if (!strcmp(value, "rev")) return {Order::Reverse, 0};
    if (!strncmp(value, "rand:", 5)) return {Order::Random, strtoull(value + 5, nullptr, 10)};
    fail("%s=%s: expected rr, rev or rand:SEED", name, value);
}

// SplitMix64. Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators", OOPSLA.
uint32_t Random::next() {
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return uint32_t((z ^ z >> 31) >> 32);
}

void fill_bytes(void* p, int value, size_t bytes) {
#if defined(__x86_64__)
    asm volatile("rep stosb" : "+D"(p), "+c"(bytes) : "a"(value) : "memory");
#else
    for (volatile char* c = static_cast<char*>(p); bytes > 0; bytes--) *c++ = char(value);
#endif
}

}  // namespace cusim
