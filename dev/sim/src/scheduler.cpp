// Threads of a block as fibers: who runs next, barriers, warp collectives, and what is said when
// nobody can go on.
//
// A thread runs until it reaches a collective. One that ends without ever blocking hands its stack
// to the next, so kernels without barriers never switch.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "block.h"
#include "report.h"
#include "sanitizer.h"
#include "trace.h"
#include "tsan.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace cusim {

Block block;
Thread threads[kMaxThreads];
Warp warps[kMaxWarps];

namespace {

// A ring of threads that can go on.
struct ReadyQueue {
    unsigned short ring[kMaxThreads];
    unsigned head = 0, tail = 0;
    unsigned size() const { return tail - head; }
    unsigned short& at(unsigned i) { return ring[i % kMaxThreads]; }
    void push(int t) {
        threads[t].state = State::Ready;
        at(tail++) = static_cast<unsigned short>(t);
    }
    Thread* pop() { return &threads[at(head++)]; }
};
ReadyQueue ready;

Stack host_stack, *running_stack, *idle_stacks;
void* host_fiber;  // the thread sanitizer's identity of whoever runs the block
Order order;       // CUSIM_SCHED
Random dice;

unsigned long progress;  // grows whenever somebody gets on; for the detection of livelocks

int next_unstarted() {
    const int i = block.next_start++;
    return order.kind == Order::Reverse ? block.threads - 1 - i : i;
}

// The thread to run next, or null. `fair` serves the queue in order even in reverse mode: a thread
// that spins must not be picked again at once.
Thread* pick(bool fair = false) {
    unsigned n = ready.size();
    const bool fresh = block.next_start < block.threads;
    auto bring_forward = [&](unsigned i) {
        std::swap(ready.at(ready.head + i), ready.at(ready.head));
    };
    if (order.kind == Order::Random && n + fresh > 1) {
        const unsigned i = dice.below(n + fresh);
        if (i < n)
            bring_forward(i);
        else
            n = 0;
    } else if (order.kind == Order::Reverse && n > 0 && !fair) {
        bring_forward(n - 1);
    }
    if (n > 0) return ready.pop();
    return fresh ? &threads[next_unstarted()] : nullptr;
}

void thread_main();
Stack* take_stack() {
    if (!idle_stacks) return stack_create(thread_main);
    Stack* s = idle_stacks;
    idle_stacks = s->next;
    return s;
}

void make_current(Thread* t) {
    block.current = t;
    threadIdx = t->index;
}
void switch_to(Stack* to, void* fiber) {
    Stack* from = running_stack;
    running_stack = to;
    stack_switch(from, to, fiber);
}
void resume(Thread* t) {
    if (!t->stack) t->stack = take_stack();
    make_current(t);
    switch_to(t->stack, t->tsan_fiber);
}

// Prints runs of threads that wait at the same place.
[[noreturn]] void deadlock() {
    block.current = nullptr;
    fflush(stdout);
    fprintf(stderr, "\n==cusim== ERROR: deadlock: no thread of the block can run\n");
    report_place();
    auto same = [](const Thread& a, const Thread& b) {
        return a.state == b.state && a.at.line == b.at.line && a.at.file == b.at.file &&
               a.mask == b.mask;
    };
    constexpr int kShown = 12;
    for (int i = 0, shown = 0; i < block.threads && shown < kShown; shown++) {
        const Thread& t = threads[i];
        int last = i;
        while (last + 1 < block.threads && same(threads[last + 1], t)) last++;
        fprintf(stderr, "  threads %d..%d ", i, last);
        if (t.state == State::Done)
            fprintf(stderr, "have exited\n");
        else if (t.state == State::AtWarp)
            fprintf(stderr, "wait in %s(mask %08x) at %s:%d\n", t.what, t.mask, t.at.file,
                    t.at.line);
        else
            fprintf(stderr, "wait in %s at %s:%d\n", t.what, t.at.file, t.at.line);
        i = last + 1;
    }
    abort();
}

// The current thread has put itself where somebody will find it; runs others until it can go on.
void block_current() {
    Thread* me = block.current;
    Thread* next = pick();
    if (!next) deadlock();
    if (next != me) resume(next);
}

void wait_at(Thread* t, State state, const char* what, unsigned mask, Where at) {
    t->state = state;
    t->what = what;
    t->mask = mask;
    t->at = at;
}

// ---- warp collectives

void warp_call_finish(Warp& warp, int i, int self) {
    progress++;
    WarpCall& call = warp.calls[i];
    warp.pending &= ~(1u << i);
    if (call.fn) call.fn(call.args, call.arrived);
    const int base = int(&warp - warps) * kWarp;
    for (unsigned lanes = call.arrived; lanes; lanes &= lanes - 1) {
        const int lane = __builtin_ctz(lanes);
        if (lane != self) ready.push(base + lane);
    }
}

WarpCall& warp_call_open(Warp& warp, int i, WarpFn fn, const char* what, unsigned mask, Where at) {
    WarpCall& call = warp.calls[i];
    warp.pending |= 1u << i;
    call.mask = mask;
    call.arrived = 0;
    call.fn = fn;
    call.what = what;
    call.at = at;
    call.ticket = warp.ticket++;
    return call;
}

bool same_file(const char* a, const char* b) {
    return a == b || !strcmp(a, b);
}

// ---- the end of a thread

void barrier_finish(int self) {
    Barrier& b = block.barrier;
    int result = b.op == BarrierOp::And;
    if (b.op != BarrierOp::None) {
        for (int i = 0; i < block.threads; i++) {
            if (threads[i].state != State::AtBarrier) continue;
            const int p = threads[i].predicate != 0;
            result = b.op == BarrierOp::Count ? result + p
                     : b.op == BarrierOp::And ? result & p
                                              : result | p;
        }
    }
    b.arrived = 0;
    b.phase++;
    progress++;
    for (int i = 0; i < block.threads; i++) {
        if (threads[i].state != State::AtBarrier) continue;
        threads[i].predicate = result;
        if (i == self)
            threads[i].state = State::Ready;
        else
            ready.push(i);
    }
}

void thread_exit() {
    Thread* t = block.current;
    Warp& warp = warps[t->warp];
    if (t->copies.first_copy != t->copies.copy_end)
        fail("thread exits with cp.async copies that were never waited for");
    if (kTsan) tsan_thread_end();
    t->state = State::Done;
    progress++;
    block.live--;
    warp.live &= ~(1u << t->lane);
    // Those that wait for this lane no longer have to.
    for (unsigned pending = warp.pending; pending; pending &= pending - 1) {
        const int i = __builtin_ctz(pending);
        if (warp.calls[i].arrived == (warp.calls[i].mask & warp.live))
            warp_call_finish(warp, i, -1);
    }
    const Barrier& b = block.barrier;
    if (b.arrived)
        fail("thread exits while %d thread(s) wait in %s at %s:%d", b.arrived, b.what, b.at.file,
             b.at.line);
}

// What runs on every fiber: one thread after another, as long as there are some to start.
void thread_main() {
    stack_started();
    for (;;) {
        (*block.body)();
        thread_exit();
        Stack* mine = running_stack;
        Thread* next = pick();
        if (next && !next->stack) {  // start it right here
            next->stack = mine;
            make_current(next);
            if (kTsan) __tsan_switch_to_fiber(next->tsan_fiber, 1);
            continue;
        }
        if (!next && block.live > 0) deadlock();
        mine->next = idle_stacks;  // whoever takes it later resumes in this loop
        idle_stacks = mine;
        if (next) {
            resume(next);
        } else {
            block.current = nullptr;
            switch_to(&host_stack, host_fiber);
        }
    }
}

}  // namespace

// ---- what kernels call

int block_barrier(const char* what, BarrierOp op, int predicate, Where at) {
    if (!block.current) fail("%s at %s:%d: outside a kernel", what, at.file, at.line);
    Thread* t = block.current;
    Barrier& b = block.barrier;
    void* sync = tsan_barrier_lock(b.phase);
    wait_at(t, State::AtBarrier, what, 0, at);
    t->predicate = predicate;
    if (b.arrived == 0) {
        b.op = op;
        b.what = what;
        b.at = at;
        b.first = t->linear;
    } else if (strcmp(b.what, what) || b.at.line != at.line || !same_file(b.at.file, at.file)) {
        fail("divergent barrier: thread %d is in %s at %s:%d, thread %d waits in %s at %s:%d",
             t->linear, what, at.file, at.line, b.first, b.what, b.at.file, b.at.line);
    }
    if (block.live < block.threads)
        fail("%s at %s:%d while %d thread(s) of the block have exited", what, at.file, at.line,
             block.threads - block.live);
    if (kTsan) __tsan_release(sync);
    if (++b.arrived == block.live)
        barrier_finish(t->linear);
    else
        block_current();
    if (kTsan) __tsan_acquire(sync);
    return t->predicate;
}

void warp_call(WarpFn fn, const char* what, unsigned mask, void* arg, bool fences, Where at) {
    if (!block.current) fail("%s at %s:%d: outside a kernel", what, at.file, at.line);
    Thread* t = block.current;
    Warp& warp = warps[t->warp];
    const unsigned me = 1u << t->lane;
    if (!(mask & me))
        fail("%s at %s:%d: lane %d is not in its own mask %08x", what, at.file, at.line, t->lane,
             mask);
    int i = -1;
    for (unsigned pending = warp.pending; pending; pending &= pending - 1) {
        const int k = __builtin_ctz(pending);
        if (warp.calls[k].mask == mask) i = k;
    }
    WarpCall& call =
        i >= 0 ? warp.calls[i]
               : warp_call_open(warp, i = __builtin_ctz(~warp.pending), fn, what, mask, at);
    if (strcmp(call.what, what) || call.at.line != at.line || !same_file(call.at.file, at.file))
        fail(
            "divergent warp collective, mask %08x: lane %d is in %s at %s:%d, other lanes (%08x) "
            "in %s at %s:%d",
            mask, t->lane, what, at.file, at.line, call.arrived, call.what, call.at.file,
            call.at.line);
    void* sync = tsan_warp_lock(t->warp, call.ticket);
    if (kTsan && fences) __tsan_release(sync);
    call.arrived |= me;
    call.args[t->lane] = arg;
    if (call.arrived == (mask & warp.live)) {
        if (fences && kTrace) trace_warp_fence(t->warp, call.arrived);
        warp_call_finish(warp, i, t->lane);
    } else {
        wait_at(t, State::AtWarp, what, mask, at);
        block_current();
    }
    if (kTsan && fences) __tsan_acquire(sync);
}

// Spinning threads take turns; many rounds without anybody getting on are a livelock.
void yield() {
    Thread* me = block.current;
    static unsigned long seen, turns;
    if (progress != seen) seen = progress, turns = 0;
    if (++turns > 1000ul * kMaxThreads) fail("livelock: every thread that is left spins");
    ready.push(me->linear);
    Thread* next = pick(true);
    if (next == me)
        me->state = State::Ready;
    else
        resume(next);
}

unsigned lane_id() {
    return unsigned(block.current->lane);
}

// ---- what the runtime calls

static void thread_init(int i, const dim3& size) {
    Thread& t = threads[i];
    const unsigned u = unsigned(i);
    t.index = {u % size.x, u / size.x % size.y, u / (size.x * size.y)};
    t.linear = i;
    t.warp = i / kWarp;
    t.lane = i % kWarp;
    t.state = State::Unstarted;
    t.stack = nullptr;
    t.mask = 0;
    t.copies.clear();
}

void block_run() {
    static bool ordered = false;
    if (!ordered) {
        order = env_order("CUSIM_SCHED");
        dice.state = order.seed;
        ordered = true;
    }
    for (int i = 0; i < block.threads; i++) thread_init(i, block.launch.block);
    for (int w = 0; w * kWarp < block.threads; w++) {
        const int lanes = std::min(kWarp, block.threads - w * kWarp);
        warps[w].live = lanes == kWarp ? 0xffffffffu : (1u << lanes) - 1;
        warps[w].pending = warps[w].ticket = 0;
    }
    block.barrier = {};
    block.next_start = 0;
    block.live = block.threads;
    ready.head = ready.tail = 0;
    stack_adopt(&host_stack);
    running_stack = &host_stack;
    host_fiber = kTsan ? __tsan_get_current_fiber() : nullptr;
    if (kTsan) tsan_block_begin();
    resume(pick());
    if (kTsan) tsan_block_end();
}

}  // namespace cusim
