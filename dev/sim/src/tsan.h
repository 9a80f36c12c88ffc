// What the thread sanitizer has to be told so that CUDA threads and streams are threads to it.
#pragma once
#include <functional>

namespace cusim {
// Addresses that stand for locks: a barrier is a release by all and then an acquire by all.
void* tsan_barrier_lock(unsigned phase);
void* tsan_warp_lock(int warp, unsigned ticket);

void tsan_block_begin();  // gives each thread of the block an identity of its own
void tsan_block_end();
void tsan_thread_end();  // by each thread, last
void tsan_kernel_end();  // orders the kernel before what follows it

// Runs a stream's work under the stream's identity, on a stack of its own: on the host thread's
// stack its locals would look like races with the host.
void tsan_run_as(void* fiber, const std::function<void()>& work);
}  // namespace cusim
