// The functions that code compiled with -fsanitize=thread calls. They stand in for the sanitizer's
// runtime: each tells trace mode of the access; atomics are then carried out, one thread at a time.
#include <cstdint>

#include "trace_access.h"

using cusim::Access;
using cusim::trace_access;

#define PLACE __builtin_return_address(0)
#define PLAIN(n)                                  \
    extern "C" void __tsan_read##n(void* p) {     \
        trace_access(p, n, Access::Load, PLACE);  \
    }                                             \
    extern "C" void __tsan_write##n(void* p) {    \
        trace_access(p, n, Access::Store, PLACE); \
    }
#define UNALIGNED(n)                                     \
    extern "C" void __tsan_unaligned_read##n(void* p) {  \
        trace_access(p, n, Access::Load, PLACE);         \
    }                                                    \
    extern "C" void __tsan_unaligned_write##n(void* p) { \
        trace_access(p, n, Access::Store, PLACE);        \
    }
PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)
UNALIGNED(2)
UNALIGNED(4)
UNALIGNED(8)
UNALIGNED(16)
extern "C" void __tsan_read_range(void* p, long n) {
    trace_access(p, unsigned(n), Access::Load, PLACE);
}
extern "C" void __tsan_write_range(void* p, long n) {
    trace_access(p, unsigned(n), Access::Store, PLACE);
}
extern "C" void __tsan_init() {}
extern "C" void __tsan_func_entry(void*) {}
extern "C" void __tsan_func_exit() {}
extern "C" void __tsan_vptr_read(void**) {}
extern "C" void __tsan_vptr_update(void**, void*) {}
extern "C" void __tsan_atomic_thread_fence(int) {}

#define FETCH(bits, name, expression)                                                        \
    extern "C" uint##bits##_t __tsan_atomic##bits##_##name(volatile uint##bits##_t* p,       \
                                                           uint##bits##_t v, int) {          \
        trace_access(const_cast<uint##bits##_t*>(p), bits / 8, Access::AtomicUpdate, PLACE); \
        const uint##bits##_t old = *p;                                                       \
        *p = uint##bits##_t(expression);                                                     \
        return old;                                                                          \
    }
#define ATOMICS(bits)                                                                             \
    FETCH(bits, exchange, v)                                                                      \
    FETCH(bits, fetch_add, old + v)                                                               \
    FETCH(bits, fetch_sub, old - v)                                                               \
    FETCH(bits, fetch_and, old& v)                                                                \
    FETCH(bits, fetch_or, old | v)                                                                \
    FETCH(bits, fetch_xor, old ^ v)                                                               \
    extern "C" uint##bits##_t __tsan_atomic##bits##_load(const volatile uint##bits##_t* p, int) { \
        trace_access(const_cast<uint##bits##_t*>(p), bits / 8, Access::AtomicLoad, PLACE);        \
        return *p;                                                                                \
    }                                                                                             \
    extern "C" void __tsan_atomic##bits##_store(volatile uint##bits##_t* p, uint##bits##_t v,     \
                                                int) {                                            \
        trace_access(const_cast<uint##bits##_t*>(p), bits / 8, Access::AtomicStore, PLACE);       \
        *p = v;                                                                                   \
    }                                                                                             \
    extern "C" int __tsan_atomic##bits##_compare_exchange_strong(                                 \
        volatile uint##bits##_t* p, uint##bits##_t* expected, uint##bits##_t v, int, int) {       \
        trace_access(const_cast<uint##bits##_t*>(p), bits / 8, Access::AtomicUpdate, PLACE);      \
        const bool same = *p == *expected;                                                        \
        if (same)                                                                                 \
            *p = v;                                                                               \
        else                                                                                      \
            *expected = *p;                                                                       \
        return same;                                                                              \
    }
ATOMICS(8)
ATOMICS(16)
ATOMICS(32)
ATOMICS(64)
