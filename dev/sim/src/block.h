// The block that runs: its threads, warps and barrier. Blocks run one after another.
#pragma once
#include <functional>
#include <vector>

#include "cusim/runtime.h"
#include "cusim/tensor.h"
#include "fiber.h"
#include "symbols.h"

namespace cusim {

constexpr int kMaxThreads = 1024, kWarp = 32, kMaxWarps = kMaxThreads / kWarp;

enum class State : unsigned char { Unstarted, Ready, AtBarrier, AtWarp, Done };

// cp.async copies of one thread: a ring of copies, and the sizes of the committed groups.
struct CopyQueue {
    static constexpr unsigned kSize = 256;
    Copy copies[kSize];
    unsigned short groups[kSize];
    unsigned first_copy, copy_end, first_group, group_end, open;  // open: not yet committed
    void clear() { first_copy = copy_end = first_group = group_end = open = 0; }
};

struct Thread {
    uint3 index;  // threadIdx
    int linear, warp, lane;
    State state;
    Stack* stack;      // null until it first runs, and after it is done
    void* tsan_fiber;  // its identity for the thread sanitizer
    // Where it waits, while it does.
    const char* what;
    Where at;
    unsigned mask;
    int predicate;  // of __syncthreads_count and the like; in and out
    CopyQueue copies;
};

// A warp collective that some lanes have reached. Several with disjoint masks may be pending.
struct WarpCall {
    unsigned mask, arrived;
    WarpFn fn;
    void* args[kWarp];
    const char* what;
    Where at;
    unsigned ticket;  // running number within the warp
};
struct Warp {
    unsigned live;     // lanes that have not exited
    unsigned pending;  // bit mask over calls
    unsigned ticket;
    WarpCall calls[kWarp];
};

struct Barrier {
    int arrived, first;  // first: the thread that opened it
    BarrierOp op;
    const char* what;
    Where at;
    unsigned phase;  // completed barriers so far
};

struct Block {
    Launch launch;
    bool running = false;  // a kernel runs
    int threads = 0, live = 0, next_start = 0;
    Thread* current = nullptr;
    Barrier barrier;
    char* dynamic_smem = nullptr;
    std::vector<SharedVariable*> shared;  // static ones that the kernel may use
    const std::function<void()>* body = nullptr;
};
extern Block block;
extern Thread threads[kMaxThreads];
extern Warp warps[kMaxWarps];

// Runs all threads of the block that `block` describes, to the end (scheduler.cpp).
void block_run();
// Runs all blocks of a kernel (kernel.cpp).
void kernel_run(const Launch& launch, const std::function<void()>& body);

}  // namespace cusim
