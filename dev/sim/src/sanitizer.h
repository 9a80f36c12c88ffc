// The sanitizers' interfaces, as weak symbols: the runtime is compiled once, without sanitizer
// flags, and finds out when it starts which tool it is linked with. Inside a fiber it must not call
// malloc, memcpy or snprintf: the thread sanitizer intercepts those even from here and would take
// the runtime's own work for the kernel's.
#pragma once
#include <cstddef>

#define CUSIM_WEAK __attribute__((weak))
extern "C" {
CUSIM_WEAK void __asan_init();
CUSIM_WEAK void __sanitizer_start_switch_fiber(void** fake_stack, const void* low, size_t size);
CUSIM_WEAK void __sanitizer_finish_switch_fiber(void* fake_stack, const void** low, size_t* size);

CUSIM_WEAK void __msan_start_switch_fiber(const void* low, size_t size);
CUSIM_WEAK void __msan_finish_switch_fiber(const void** low, size_t* size);
CUSIM_WEAK void __msan_poison(const void* p, size_t size);
CUSIM_WEAK void __msan_unpoison_string(const char* text);

CUSIM_WEAK void* __tsan_get_current_fiber();
CUSIM_WEAK void* __tsan_create_fiber(unsigned flags);
CUSIM_WEAK void __tsan_destroy_fiber(void* fiber);
CUSIM_WEAK void __tsan_switch_to_fiber(void* fiber, unsigned flags);
CUSIM_WEAK void __tsan_set_fiber_name(void* fiber, const char* name);
CUSIM_WEAK void __tsan_acquire(void* address);
CUSIM_WEAK void __tsan_release(void* address);
CUSIM_WEAK void __tsan_java_init(unsigned long begin, unsigned long size);
CUSIM_WEAK void __tsan_java_alloc(unsigned long p, unsigned long size);
CUSIM_WEAK void __tsan_java_free(unsigned long p, unsigned long size);
CUSIM_WEAK void AnnotateIgnoreReadsBegin(const char* file, int line);
CUSIM_WEAK void AnnotateIgnoreReadsEnd(const char* file, int line);
CUSIM_WEAK void AnnotateIgnoreWritesBegin(const char* file, int line);
CUSIM_WEAK void AnnotateIgnoreWritesEnd(const char* file, int line);
CUSIM_WEAK void AnnotateBenignRaceSized(const char* file, int line, const volatile void* p,
                                        long size, const char* what);
}

namespace cusim {
inline const bool kAsan = __asan_init != nullptr;
inline const bool kMsan = __msan_start_switch_fiber != nullptr;
inline const bool kTsan = __tsan_create_fiber != nullptr && __tsan_java_init != nullptr;
// While it lives the thread sanitizer sees no access. For what the simulator notes down: streams
// take turns at it, but must not count as ordered by that, or no race between two streams would
// show.
struct Unseen {
    Unseen() {
        if (!kTsan) return;
        AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
        AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
    }
    ~Unseen() {
        if (!kTsan) return;
        AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
        AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
    }
    Unseen(const Unseen&) = delete;
};
// Under these tools device memory comes from malloc: the tool guards it better than pages do.
inline const bool kHeapMemory = kAsan || kMsan || kTsan;
}  // namespace cusim
