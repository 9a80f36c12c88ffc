// What the thread sanitizer has to be told so that CUDA threads and streams are threads to it.
#include "tsan.h"

#include <omp.h>

#include <cstdio>
#include <deque>

#include "block.h"
#include "report.h"
#include "sanitizer.h"
#include "symbols.h"

extern "C" void cusim_swap(void** save, void* load);

// Threads of OpenMP and of BLAS still live when the program ends. CUDA threads make a process look
// multi-threaded to the sanitizer, and a test that then forks ranks would not be let go on.
extern "C" const char* __tsan_default_options() {
    return "report_thread_leaks=0:die_after_fork=0";
}

namespace cusim {
namespace {

// OpenMP's runtime is not instrumented, so its barriers would look like no order at all.
[[maybe_unused]] const bool one_host_thread = kTsan && (omp_set_num_threads(1), true);

// Two barrier locks alternate, and 64 of a warp rotate, so that a thread that has run ahead cannot
// order one that lags. 8 bytes apart: the sanitizer's granule.
alignas(8) struct { char barrier[2][8], warp[kMaxWarps][64][8]; } locks;
char kernel_end;

// Makes the sanitizer forget all accesses to a range (its interface for Java's garbage collector).
void forget(const void* p, size_t bytes) {
    static const bool started = (__tsan_java_init(8, 8), true);
    (void)started;
    const auto begin = reinterpret_cast<unsigned long>(p) & ~7ul;
    const unsigned long size = (bytes + 7) & ~7ul;
    if (size == 0) return;
    __tsan_java_free(begin, size);
    __tsan_java_alloc(begin, size);
}

// clang's runtime hands out 255 slots in turn and remembers only what the last holder of a slot
// did. A few idle identities between two blocks keep a thread from getting the slot that its twin
// in an earlier block had, which would hide their races.
void shift_slots() {
    static std::deque<void*> idle;
    static char lock;
    void* me = __tsan_get_current_fiber();
    for (int k = 0; k < 3; k++) {
        void* one = __tsan_create_fiber(0);
        {
            const Unseen notes;
            idle.push_back(one);
        }
        __tsan_switch_to_fiber(one, 1);
        __tsan_release(&lock);
        __tsan_switch_to_fiber(me, 1);
    }
    const Unseen notes;
    while (idle.size() > 64) {
        __tsan_destroy_fiber(idle.front());
        idle.pop_front();
    }
}

Stack* side_stack;
void* side_return;
const std::function<void()>* side_work;
bool on_side_stack;
void side_main() {
    for (;;) {
        (*side_work)();
        cusim_swap(&side_stack->sp, side_return);
    }
}

}  // namespace

void* tsan_barrier_lock(unsigned phase) {
    return locks.barrier[phase & 1];
}
void* tsan_warp_lock(int warp, unsigned ticket) {
    return locks.warp[warp][ticket & 63];
}

void tsan_block_begin() {
    // Shared memory and barriers are new in each block: what earlier blocks did there is no race.
    forget(&locks, sizeof locks);
    for (const SharedVariable* v : block.shared) forget(v->p, v->bytes);
    forget(block.dynamic_smem, block.launch.smem);
    const unsigned number = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    for (int i = 0; i < block.threads; i++) {
        char name[64];
        snprintf(name, sizeof name, "block %u thread %d", number, i);
        threads[i].tsan_fiber = __tsan_create_fiber(0);
        __tsan_set_fiber_name(threads[i].tsan_fiber, name);
    }
    shift_slots();
}

// The sanitizer forgets what a destroyed thread did, so the last ones live on, to be compared with
// those of later blocks.
void tsan_block_end() {
    const Unseen notes;
    static std::deque<void*> kept;
    static const size_t limit = size_t(env_number("CUSIM_TSAN_KEEP", 4096));
    for (int i = 0; i < block.threads; i++) kept.push_back(threads[i].tsan_fiber);
    while (kept.size() > limit) {
        __tsan_destroy_fiber(kept.front());
        kept.pop_front();
    }
}
void tsan_thread_end() {
    __tsan_release(&kernel_end);
}
void tsan_kernel_end() {
    __tsan_acquire(&kernel_end);
}

void tsan_run_as(void* fiber, const std::function<void()>& work) {
    void* caller = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(fiber, 1);
    if (on_side_stack) {
        work();
    } else {
        if (!side_stack) side_stack = stack_create(side_main);
        on_side_stack = true;
        side_work = &work;
        cusim_swap(&side_return, side_stack->sp);
        on_side_stack = false;
    }
    __tsan_switch_to_fiber(caller, 1);
}

}  // namespace cusim
