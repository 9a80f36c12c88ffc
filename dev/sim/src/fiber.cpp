// Stacks that can be switched: each CUDA thread that blocks keeps one.
#include "fiber.h"

#include <pthread.h>
#include <sys/mman.h>

#include "report.h"
#include "sanitizer.h"

// A switch saves what a function call must preserve and exchanges the stack pointer: 5 to 12 ns,
// against 300 ns of swapcontext, which makes two system calls.
#if defined(__x86_64__)
asm(R"(.text
.globl cusim_swap
.type cusim_swap,@function
cusim_swap:
    push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15
    mov %rsp,(%rdi)
    mov %rsi,%rsp
    pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp
    ret
.size cusim_swap,.-cusim_swap
)");
// Six saved registers, the entry, and a return address of 0, which ends backtraces.
static void* first_frame(char* top, void (*entry)()) {
    void** p = reinterpret_cast<void**>(reinterpret_cast<uintptr_t>(top) & ~uintptr_t(63)) - 8;
    *--p = nullptr;
    *--p = reinterpret_cast<void*>(entry);
    for (int i = 0; i < 6; i++) *--p = nullptr;
    return p;
}
#elif defined(__aarch64__)
asm(R"(.text
.globl cusim_swap
.type cusim_swap,%function
cusim_swap:
    sub sp,sp,#160
    stp x19,x20,[sp]; stp x21,x22,[sp,#16]; stp x23,x24,[sp,#32]; stp x25,x26,[sp,#48]
    stp x27,x28,[sp,#64]; stp x29,x30,[sp,#80]
    stp d8,d9,[sp,#96]; stp d10,d11,[sp,#112]; stp d12,d13,[sp,#128]; stp d14,d15,[sp,#144]
    mov x9,sp; str x9,[x0]; mov sp,x1
    ldp x19,x20,[sp]; ldp x21,x22,[sp,#16]; ldp x23,x24,[sp,#32]; ldp x25,x26,[sp,#48]
    ldp x27,x28,[sp,#64]; ldp x29,x30,[sp,#80]
    ldp d8,d9,[sp,#96]; ldp d10,d11,[sp,#112]; ldp d12,d13,[sp,#128]; ldp d14,d15,[sp,#144]
    add sp,sp,#160
    ret
.size cusim_swap,.-cusim_swap
)");
static void* first_frame(char* top, void (*entry)()) {
    void** p = reinterpret_cast<void**>(reinterpret_cast<uintptr_t>(top) & ~uintptr_t(63)) - 20;
    for (int i = 0; i < 20; i++) p[i] = nullptr;
    p[11] = reinterpret_cast<void*>(entry);  // x30, the link register
    return p;
}
#else
#error "fiber.cpp: write cusim_swap for this processor"
#endif
extern "C" void cusim_swap(void** save, void* load);

namespace cusim {
namespace {

constexpr size_t kMaxStacks = 1100;  // 1024 threads of a block, the host's, some spare
constexpr size_t kPage = 4096;

struct Arena {
    char* low = nullptr;
    size_t stride = 0, count = 0;
};
Arena arena;

void arena_create() {
    arena.stride = size_t(env_number("CUSIM_STACK_KB", kHeapMemory ? 256 : 64)) * 1024;
    // A stride that is no power of two: else all stack tops share a few cache sets, and a switch
    // costs three times as much.
    arena.stride += kPage;
    void* p = mmap(nullptr, kMaxStacks * arena.stride, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) fail("cannot map %zu stacks", kMaxStacks);
    arena.low = static_cast<char*>(p);
    // Local variables are private; a stack that serves one thread after another is no race.
    if (kTsan)
        AnnotateBenignRaceSized(__FILE__, __LINE__, p, long(kMaxStacks * arena.stride), "stacks");
}

}  // namespace

Stack* stack_create(void (*entry)()) {
    if (!arena.low) arena_create();
    if (arena.count == kMaxStacks) fail("more than %zu stacks", kMaxStacks);
    const size_t colour = arena.count * 3 % 64 * 64;  // spreads the tops over the lines of a page
    auto* s = new Stack;
    s->low = arena.low + arena.count++ * arena.stride;
    s->bytes = arena.stride - colour;
    mprotect(s->low, kPage, PROT_NONE);
    s->sp = first_frame(s->low + s->bytes, entry);
    return s;
}

void stack_switch(Stack* from, Stack* to, void* tsan_fiber) {
    constexpr unsigned kNoSync = 1;  // a switch orders nothing; barriers do
    if (kTsan) __tsan_switch_to_fiber(tsan_fiber, kNoSync);
    if (kAsan) __sanitizer_start_switch_fiber(&from->fake, to->low, to->bytes);
    if (kMsan) __msan_start_switch_fiber(to->low, to->bytes);
    cusim_swap(&from->sp, to->sp);
    if (kAsan) __sanitizer_finish_switch_fiber(from->fake, nullptr, nullptr);
    if (kMsan) {
        const void* low;
        size_t bytes;
        __msan_finish_switch_fiber(&low, &bytes);
    }
}

void stack_started() {
    if (kAsan) __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
    if (kMsan) {
        const void* low;
        size_t bytes;
        __msan_finish_switch_fiber(&low, &bytes);
    }
}

void stack_adopt(Stack* stack) {
    static thread_local Stack mine;  // asking costs a read of /proc/self/maps
    if (!mine.low) {
        pthread_attr_t attributes;
        void* low = nullptr;
        pthread_getattr_np(pthread_self(), &attributes);
        pthread_attr_getstack(&attributes, &low, &mine.bytes);
        pthread_attr_destroy(&attributes);
        mine.low = static_cast<char*>(low);
    }
    stack->low = mine.low;
    stack->bytes = mine.bytes;
}

bool stack_holds(const void* p) {
    const char* c = static_cast<const char*>(p);
    return arena.low && c >= arena.low && c < arena.low + kMaxStacks * arena.stride;
}
bool stack_guard_holds(const void* p) {
    return stack_holds(p) && size_t(static_cast<const char*>(p) - arena.low) % arena.stride < kPage;
}

}  // namespace cusim
