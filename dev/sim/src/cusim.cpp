// cusim.cpp - runtime of the host simulator: fibers, barriers, memory, streams.
// Compile it WITHOUT sanitizer flags (except MSan): every sanitizer hook is a weak symbol.
#include "cusim.h"
#include <algorithm>
#include <chrono>
#include <cstdarg>
#include <cxxabi.h>
#include <deque>
#include <dlfcn.h>
#include <link.h>
#include <memory>
#include <pthread.h>
#include <random>
#include <signal.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>
#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#else
#define VALGRIND_STACK_REGISTER(a, b) ((void)0)
#define RUNNING_ON_VALGRIND 0
#endif

extern "C" {
#define WEAK __attribute__((weak))
WEAK void *__tsan_get_current_fiber(); WEAK void *__tsan_create_fiber(unsigned); WEAK void __tsan_destroy_fiber(void *);
WEAK void __tsan_switch_to_fiber(void *, unsigned); WEAK void __tsan_acquire(void *); WEAK void __tsan_release(void *);
WEAK void __tsan_set_fiber_name(void *, const char *); WEAK void __tsan_java_init(unsigned long, unsigned long); WEAK void __tsan_java_alloc(unsigned long, unsigned long);
WEAK void __tsan_java_free(unsigned long, unsigned long); WEAK void AnnotateBenignRaceSized(const char *, int, const volatile void *, long, const char *);
WEAK void __sanitizer_start_switch_fiber(void **, const void *, size_t); WEAK void __sanitizer_finish_switch_fiber(void *, const void **, size_t *);
WEAK void __msan_start_switch_fiber(const void *, size_t); WEAK void __msan_finish_switch_fiber(const void **, size_t *);
WEAK void __msan_poison(const void *, size_t);  WEAK void __asan_init();
WEAK extern char __start_cusim_smem[], __stop_cusim_smem[];
WEAK void cusim_trace_block_end(const void *fn); WEAK extern int cusim_built_by_clang;
}
uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace cusim {
void (*trace)(const void *, unsigned, bool, void *);
static const bool TSAN = __tsan_create_fiber && __tsan_java_init, ASAN = __asan_init, MSAN = __msan_start_switch_fiber;
static bool env(const char *n, bool d) { const char *e = getenv(n); return e ? atoi(e) != 0 : d; }
static const bool STRICT = env("CUSIM_STRICT", true), VALGRIND = [] { return RUNNING_ON_VALGRIND != 0; }();
static const bool HEAP = TSAN || ASAN || MSAN || VALGRIND;          // device memory from malloc: the tool guards it

// ------------------------------------------------------------------ fibers
struct Stack { void *sp; char *lo; size_t size; void *fake; Stack *next; };
#if defined(__x86_64__) && !defined(CUSIM_UCONTEXT)
asm(R"(.text
.type cusim_swap,@function
cusim_swap: push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15
 mov %rsp,(%rdi); mov %rsi,%rsp
 pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp; ret
.size cusim_swap,.-cusim_swap)");
extern "C" void cusim_swap(void **save, void *load);
static void make_stack(Stack *s, void (*fn)()) {
  void **p = (void **)((uintptr_t)(s->lo + s->size) & ~63ul) - 8;
  *--p = nullptr; *--p = (void *)fn; for (int i = 0; i < 6; i++) *--p = nullptr;     // return address 0 ends backtraces
  s->sp = p;
}
#elif defined(__aarch64__) && !defined(CUSIM_UCONTEXT)       // not tested here
asm(R"(.text
.type cusim_swap,%function
cusim_swap: sub sp,sp,#160; stp x19,x20,[sp]; stp x21,x22,[sp,#16]; stp x23,x24,[sp,#32]; stp x25,x26,[sp,#48]
 stp x27,x28,[sp,#64]; stp x29,x30,[sp,#80]; stp d8,d9,[sp,#96]; stp d10,d11,[sp,#112]; stp d12,d13,[sp,#128]; stp d14,d15,[sp,#144]
 mov x9,sp; str x9,[x0]; mov sp,x1; ldp x19,x20,[sp]; ldp x21,x22,[sp,#16]; ldp x23,x24,[sp,#32]; ldp x25,x26,[sp,#48]
 ldp x27,x28,[sp,#64]; ldp x29,x30,[sp,#80]; ldp d8,d9,[sp,#96]; ldp d10,d11,[sp,#112]; ldp d12,d13,[sp,#128]; ldp d14,d15,[sp,#144]
 add sp,sp,#160; ret)");
extern "C" void cusim_swap(void **save, void *load);
static void make_stack(Stack *s, void (*fn)()) {
  void **p = (void **)((uintptr_t)(s->lo + s->size) & ~63ul) - 20;
  for (int i = 0; i < 20; i++) p[i] = nullptr;
  p[11] = (void *)fn; s->sp = p;
}
#else
#include <ucontext.h>
static void make_stack(Stack *s, void (*fn)()) {
  auto *u = new ucontext_t; getcontext(u); u->uc_stack.ss_sp = s->lo; u->uc_stack.ss_size = s->size; u->uc_link = nullptr;
  makecontext(u, fn, 0); s->sp = u;
}
static void cusim_swap(void **save, void *load) { ucontext_t me; *save = &me; swapcontext(&me, (ucontext_t *)load); }
#endif

struct CpOp { void *dst; const void *src; int bytes, valid; };
enum State : uint8_t { UNSTARTED, READY, AT_BARRIER, AT_WARP, DONE };
struct Thread {
  unsigned epoch;                                                   // of the last __syncwarp it took part in (race checker)
  uint3 tid; int lin, warp, lane; State state; Stack *stk; void *tsan;
  const char *what, *file; int line; unsigned mask; int *pred;
  CpOp cp[256]; uint16_t group[256]; unsigned cp_head, cp_tail, g_head, g_tail, open;   // cp.async rings: copies, sizes of the committed groups
};                                                                  // (nothing here may call malloc, memcpy, ...: TSan intercepts those)
struct WarpOp { unsigned mask, arrived; WarpFn fn; void *args[32]; const char *what, *file; int line; unsigned tick; };
struct Warp { unsigned live, tick, used; WarpOp ops[32]; };         // used: bit mask of pending ops
struct Barrier { int arrived, op, first; const char *what, *file; int line; unsigned phase; };
alignas(8) static struct { char bar[8], warp[32][64]; } tsync;      // addresses that TSan knows as locks; forgotten at each block start

static Thread T[1024]; static Warp W[32]; static Barrier bar;
Thread *cur; static Stack *running, host_stack, *free_stacks;
static int nthreads, next_start, live_threads;
static uint16_t ready[1024]; static unsigned rd_head, rd_tail;
static const std::function<void()> *body;
static LaunchInfo launch_now;
static bool in_kernel; static char kernel_end_sync;
static char *dyn; static size_t dyn_size;
static int sched; static std::mt19937 rng;                          // 0 round robin, 1 reverse, 2 random
static size_t stack_bytes = 64 << 10; static char *arena; static size_t n_stacks;
unsigned long n_switches; static unsigned n_launch;

static std::string sym(const void *fn) {                            // only on the error path
  Dl_info d; char cmd[600], buf[400] = "?";
  if (!dladdr(fn, &d)) return "?";
  if (d.dli_sname && d.dli_saddr == fn) { int st; char *n = abi::__cxa_demangle(d.dli_sname, 0, 0, &st); return n ? n : d.dli_sname; }
  snprintf(cmd, sizeof cmd, "addr2line -Cfe /proc/%d/exe %#lx 2>/dev/null", getpid(), (char *)fn - (char *)d.dli_fbase);
  if (FILE *f = popen(cmd, "r")) { if (fgets(buf, sizeof buf, f)) buf[strcspn(buf, "\n")] = 0; pclose(f); }
  return buf;
}
static void where() {
  if (!in_kernel) return;
  auto &l = launch_now; fprintf(stderr, "  in kernel %s <<<(%u,%u,%u),(%u,%u,%u),%zu>>> block (%u,%u,%u)", sym(l.fn).c_str(), l.grid.x, l.grid.y,
          l.grid.z, l.block.x, l.block.y, l.block.z, l.smem, blockIdx.x, blockIdx.y, blockIdx.z);
  if (cur) fprintf(stderr, " thread (%u,%u,%u)", cur->tid.x, cur->tid.y, cur->tid.z);
  fputc('\n', stderr);
}
// hooks that the sanitizer runtimes call when they report: name the CUDA thread
extern "C" void __asan_on_error() { where(); }
extern "C" void __ubsan_on_report() { where(); }
void fail(const char *fmt, ...) {
  fflush(stdout); fprintf(stderr, "\n==cusim== ERROR: ");
  va_list a; va_start(a, fmt); vfprintf(stderr, fmt, a); va_end(a);
  fputc('\n', stderr); where(); fflush(stderr); abort();
}
static void push_ready(int t) { T[t].state = READY; ready[rd_tail++ & 1023] = uint16_t(t); }
static Stack *get_stack();
static void fiber_main();

static Thread *pick(bool fair = false) {
  unsigned n = rd_tail - rd_head; int fresh = nthreads - next_start;
  if (sched == 2 && n + (fresh > 0) > 1) {
    unsigned r = rng() % (n + (fresh > 0));
    if (r < n) std::swap(ready[(rd_head + r) & 1023], ready[rd_head & 1023]); else n = 0;
  } else if (sched == 1 && n && !fair) std::swap(ready[rd_head & 1023], ready[(rd_tail - 1) & 1023]);
  if (n) return &T[ready[rd_head++ & 1023]];
  if (fresh > 0) { int i = next_start++; return &T[sched == 1 ? nthreads - 1 - i : i]; }
  return nullptr;
}
[[noreturn]] static void deadlock() {
  cur = nullptr; fflush(stdout);
  fprintf(stderr, "\n==cusim== ERROR: deadlock: no thread of the block can run\n"); where();
  for (int i = 0, shown = 0; i < nthreads && shown < 12; i++) {     // runs of threads waiting at one place
    int j = i; auto same = [&](int k) { return T[k].state == T[i].state && T[k].line == T[i].line && T[k].file == T[i].file && T[k].mask == T[i].mask; };
    while (j + 1 < nthreads && same(j + 1)) j++;
    if (T[i].state == DONE) fprintf(stderr, "  threads %d..%d: exited\n", i, j);
    else if (T[i].state == AT_WARP) fprintf(stderr, "  threads %d..%d wait in %s(mask %08x) at %s:%d\n", i, j, T[i].what, T[i].mask, T[i].file, T[i].line);
    else fprintf(stderr, "  threads %d..%d wait in %s at %s:%d\n", i, j, T[i].what, T[i].file, T[i].line);
    i = j; shown++;
  }
  abort();
}
static void swap_to(Stack *to, void *tsan_to) {
  Stack *from = running; n_switches++;
  if (TSAN) __tsan_switch_to_fiber(tsan_to, 1);                     // 1: no happens-before from the switch itself
  if (ASAN) __sanitizer_start_switch_fiber(&from->fake, to->lo, to->size);
  if (MSAN) __msan_start_switch_fiber(to->lo, to->size);
  running = to; cusim_swap(&from->sp, to->sp);
  if (ASAN) __sanitizer_finish_switch_fiber(from->fake, nullptr, nullptr);
  if (MSAN) { const void *b; size_t s; __msan_finish_switch_fiber(&b, &s); }
}
static void *host_tsan;
static void enter(Thread *n) { cur = n; threadIdx = n->tid; }
static void block_current() {                                       // the caller has queued itself somewhere
  Thread *me = cur, *n = pick();
  if (!n) deadlock();
  if (n != me) {
    if (!n->stk) n->stk = get_stack();
    enter(n); swap_to(n->stk, n->tsan);                             // resumed by someone who called enter(me)
  }
}
static unsigned long n_yields, n_events;                            // events: anything that may let a spinning thread go on
struct Landing { void *dst; const void *src; unsigned bytes; uint64_t *bar; };
static Landing landing[256]; static unsigned land_head, land_tail;  // bulk copies in flight, delivered as late as possible
static void complete(uint64_t *bar, int arrivals, int bytes);
static bool deliver() {
  if (land_head == land_tail) return false;
  Landing &l = landing[land_head++ & 255]; const char *s = (const char *)l.src; char *d = (char *)l.dst;
  for (unsigned i = 0; i < l.bytes; i++) d[i] = s[i];
  complete(l.bar, 0, -int(l.bytes)); return true;
}
void yield() {
  Thread *me = cur; static unsigned long seen; static unsigned stuck;
  if (n_events != seen) { seen = n_events; stuck = 0; }
  if (++stuck > 2 * (rd_tail - rd_head) + 2 && next_start == nthreads) {   // a round without progress: everybody spins
    if (deliver()) stuck = 0;
    else if (stuck > 200000) fail("livelock: every thread that is left spins");
  }
  n_yields++; me->what = "yield"; push_ready(me->lin); Thread *n = pick(true);
  if (n != me) { if (!n->stk) n->stk = get_stack(); enter(n); swap_to(n->stk, n->tsan); } else me->state = READY;
}
// mbarrier: bits 0-15 pending arrivals, 16-31 expected arrivals, 32-62 outstanding bytes (biased), 63 phase
static void complete(uint64_t *bar, int arrivals, int bytes) {
  uint64_t b = *bar; int pend = int(b & 0xffff) - arrivals, cnt = int(b >> 16 & 0xffff), tx = int(b >> 32 & 0x7fffffff) - (1 << 30) + bytes; uint64_t ph = b >> 63;
  if (pend < 0) fail("mbarrier %p: more arrivals than its count %d", (void *)bar, cnt);
  if (!pend && !tx) { ph ^= 1; pend = cnt; n_events++; }
  *bar = ph << 63 | uint64_t(tx + (1 << 30)) << 32 | uint64_t(unsigned(cnt)) << 16 | uint64_t(unsigned(pend));
}
void mbar_init(uint64_t *bar, int count) { *bar = 1ull << 62 | uint64_t(unsigned(count)) << 16 | unsigned(count); }
void mbar_arrive(uint64_t *bar, int bytes) { if (TSAN) __tsan_release(bar); complete(bar, 0, bytes); complete(bar, 1, 0); }
void mbar_wait(uint64_t *bar, int parity) { while (int(*bar >> 63) == parity) yield(); if (TSAN) __tsan_acquire(bar); }
void bulk_load(void *dst, const void *src, unsigned bytes, uint64_t *bar) {
  if (land_tail - land_head == 256) deliver();
  Landing &l = landing[land_tail++ & 255]; l.dst = dst; l.src = src; l.bytes = bytes; l.bar = bar; n_events++;
}
static void warp_done(Warp &w, int i, int self) {
  WarpOp &op = w.ops[i]; w.used &= ~(1u << i);
  if (op.fn) op.fn(op.args, op.arrived);
  int base = int(&w - W) * 32;
  for (unsigned m = op.arrived; m; m &= m - 1) { int l = __builtin_ctz(m); if (l != self) push_ready(base + l); }
}
void warp_call(WarpFn fn, const char *what, unsigned mask, void *arg, bool mo, const char *file, int line) {
  Thread *t = cur; Warp &w = W[t->warp]; unsigned me = 1u << t->lane; int i = -1;
  if (!(mask & me)) fail("%s at %s:%d: lane %d is not in its own mask %08x", what, file, line, t->lane, mask);
  for (unsigned u = w.used; u; u &= u - 1) if (w.ops[__builtin_ctz(u)].mask == mask) i = __builtin_ctz(u);
  WarpOp &op = w.ops[i >= 0 ? i : i = __builtin_ctz(~w.used)];
  if (!(w.used >> i & 1)) { w.used |= 1u << i; op.mask = mask; op.arrived = 0; op.fn = fn; op.what = what; op.file = file; op.line = line; op.tick = w.tick++; }
  if ((op.what != what && strcmp(op.what, what)) || (STRICT && (op.line != line || (op.file != file && strcmp(op.file, file)))))
    fail("divergent warp collective, mask %08x: lane %d is in %s at %s:%d, other lanes (%08x) in %s at %s:%d", mask, t->lane, what, file, line, op.arrived, op.what, op.file, op.line);
  unsigned tick = op.tick; char *sync = &tsync.warp[t->warp][tick & 63];
  if (TSAN && mo) __tsan_release(sync);
  op.arrived |= me; op.args[t->lane] = arg; t->what = what; t->file = file; t->line = line; t->mask = mask; t->state = AT_WARP;
  if (op.arrived == (mask & w.live)) { t->state = READY; warp_done(w, i, t->lane); }
  else block_current();
  if (mo) t->epoch = tick + 1;
  if (TSAN && mo) __tsan_acquire(sync);
}
static void barrier_done(int self) {
  int v = bar.op == 'a';
  if (bar.op) for (int i = 0; i < nthreads; i++) if (T[i].state == AT_BARRIER) { int p = *T[i].pred != 0; v = bar.op == '+' ? v + p : bar.op == 'a' ? v & p : v | p; }
  for (int i = 0; i < nthreads; i++) if (T[i].state == AT_BARRIER) { if (bar.op) *T[i].pred = v; if (i == self) T[i].state = READY; else push_ready(i); }
  bar.arrived = 0; bar.phase++;
}
void sync_block(const char *what, int *pred, int opc, const char *file, int line) {
  if (!in_kernel) fail("%s outside a kernel", what);
  Thread *t = cur; char *sync = &tsync.bar[bar.phase & 1];
  t->what = what; t->file = file; t->line = line; t->mask = 0; t->state = AT_BARRIER; t->pred = pred;
  if (!bar.arrived) { bar.op = opc; bar.what = what; bar.file = file; bar.line = line; bar.first = t->lin; }
  else if (STRICT && (strcmp(bar.what, what) || bar.line != line || strcmp(bar.file, file)))
    fail("divergent barrier: thread %d is in %s at %s:%d, thread %d waits in %s at %s:%d", t->lin, what, file, line, bar.first, bar.what, bar.file, bar.line);
  if (STRICT && live_threads < nthreads) fail("%s at %s:%d while %d thread(s) of the block have exited", what, file, line, nthreads - live_threads);
  if (TSAN) __tsan_release(sync);
  if (++bar.arrived == live_threads) barrier_done(t->lin); else block_current();
  if (TSAN) __tsan_acquire(sync);
}
static void thread_exit() {
  Thread *t = cur; Warp &w = W[t->warp];
  if (t->cp_head != t->cp_tail) fail("thread exits with cp.async copies that were never waited for");
  if (TSAN) __tsan_release(&kernel_end_sync);
  t->state = DONE; live_threads--; w.live &= ~(1u << t->lane);
  for (unsigned u = w.used; u; u &= u - 1) { WarpOp &op = w.ops[__builtin_ctz(u)]; if (op.arrived == (op.mask & w.live)) warp_done(w, __builtin_ctz(u), -1); }
  if (bar.arrived) {
    if (STRICT) fail("thread exits while %d thread(s) wait in %s at %s:%d", bar.arrived, bar.what, bar.file, bar.line);
    if (bar.arrived == live_threads) barrier_done(-1);
  }
}
static void fiber_main() {
  if (ASAN) __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
  if (MSAN) { const void *b; size_t s; __msan_finish_switch_fiber(&b, &s); }
  for (;;) {
    (*body)(); thread_exit();
    Stack *me = running; Thread *n = pick();
    if (n && !n->stk) { n->stk = me; enter(n); if (TSAN) __tsan_switch_to_fiber(n->tsan, 1); continue; }   // start it on this very stack
    if (!n && live_threads) deadlock();
    me->next = free_stacks; free_stacks = me;                       // later reuse resumes in this loop
    if (n) { enter(n); swap_to(n->stk, n->tsan); } else { cur = nullptr; swap_to(&host_stack, host_tsan); }
  }
}
static Stack *new_stack(void (*entry)()) {
  if (!arena) {
    const char *k = getenv("CUSIM_STACK_KB"); stack_bytes = size_t(k ? atoi(k) : ASAN || TSAN || MSAN ? 256 : 64) << 10;
    stack_bytes += 4096;                                            // a stride that is no power of two: else all stacks share cache sets
    arena = (char *)mmap(nullptr, 1100 * stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (TSAN) AnnotateBenignRaceSized(__FILE__, __LINE__, arena, long(1100 * stack_bytes), "fiber stacks");   // local memory is private
  }
  size_t colour = n_stacks * 3 % 64 * 64;                           // and spread the tops over the lines of a page
  auto *s = new Stack{nullptr, arena + n_stacks++ * stack_bytes, stack_bytes - colour, nullptr, nullptr};
  mprotect(s->lo, 4096, PROT_NONE); (void)VALGRIND_STACK_REGISTER(s->lo + 4096, s->lo + s->size); make_stack(s, entry);
  return s;
}
static Stack *get_stack() {
  if (free_stacks) { Stack *s = free_stacks; free_stacks = s->next; return s; }
  return new_stack(fiber_main);
}
// TSan only: a stream's work runs in the stream's name, so it must not run on the host thread's stack
static Stack *op_stack; static void *op_return; static const std::function<void()> *op_fn; static bool on_op_stack;
static void op_main() { for (;;) { (*op_fn)(); cusim_swap(&op_stack->sp, op_return); } }
static void run_op(const std::function<void()> &f) {
  if (!TSAN || on_op_stack) return f();
  if (!op_stack) op_stack = new_stack(op_main);
  on_op_stack = true; op_fn = &f; cusim_swap(&op_return, op_stack->sp); on_op_stack = false;
}
static void fill(void *p, int v, size_t n) { asm volatile("" ::: "memory"); volatile char *c = (char *)p;    // not memset: tools intercept it
#if defined(__x86_64__)
  asm volatile("rep stosb" : "+D"(p), "+c"(n) : "a"(v) : "memory"); (void)c;
#else
  while (n--) *c++ = char(v);
#endif
}
static std::pair<char *, size_t> static_shared() {
  static std::pair<char *, size_t> r{nullptr, 0}; static bool done;
  if (!done) {
    done = true;
    if (__start_cusim_smem) r = {__start_cusim_smem, size_t(__stop_cusim_smem - __start_cusim_smem)};
    else if (false && !&cusim_built_by_clang && env("CUSIM_POISON_SHARED", true))   // never with clang: its TSan keeps its own state in the TLS
      dl_iterate_phdr([](dl_phdr_info *i, size_t, void *o) {
        for (int k = 0; k < i->dlpi_phnum; k++) if (i->dlpi_phdr[k].p_type == PT_TLS && i->dlpi_tls_data) *(decltype(r) *)o = {(char *)i->dlpi_tls_data, i->dlpi_phdr[k].p_memsz};
        return 1; }, &r);                                           // first entry: the executable
    if (TSAN && r.second) { r.second = (r.second + 7) & ~7ul; }
  }
  return r;
}
static void reset_shared() {
  auto [p, n] = static_shared();
  if (MSAN) { if (n) __msan_poison(p, n); if (dyn_size) __msan_poison(dyn, dyn_size); return; }
  if (VALGRIND) return;
  if (n) fill(p, 0xFF, n);
  if (dyn_size) fill(dyn, 0xFF, dyn_size);
  if (TSAN) {                                                       // forget earlier blocks' accesses to this block's shared memory
    static bool init; if (!init) { init = true; __tsan_java_init(8, 8); }
    size_t d = (dyn_size + 7) & ~7ul;
    if (n) { __tsan_java_free((unsigned long)p & ~7ul, n); __tsan_java_alloc((unsigned long)p & ~7ul, n); }
    if (d) { __tsan_java_free((unsigned long)dyn, d); __tsan_java_alloc((unsigned long)dyn, d); }
    __tsan_java_free((unsigned long)&tsync, sizeof tsync); __tsan_java_alloc((unsigned long)&tsync, sizeof tsync);
  }
}
void *dyn_smem() { return dyn; }
unsigned lane_id() { return unsigned(cur->lane); }
unsigned warp_id() { return unsigned(cur->warp); }
unsigned active_mask() { return W[cur->warp].live; }

static void device_access(bool on);
static void run_kernel(const LaunchInfo &li, const std::function<void()> &f) {
  static bool once;
  if (!once) {
    once = true; const char *s = getenv("CUSIM_SCHED");
    if (s) { sched = !strncmp(s, "rev", 3) ? 1 : !strncmp(s, "rand", 4) ? 2 : 0; if (auto *c = strchr(s, ':')) rng.seed(unsigned(atoi(c + 1))); }
    pthread_attr_t a; void *lo; pthread_getattr_np(pthread_self(), &a); pthread_attr_getstack(&a, &lo, &host_stack.size); host_stack.lo = (char *)lo;
  }
  launch_now = li; n_launch++; body = &f; gridDim = li.grid; blockDim = li.block; nthreads = int(li.block.x * li.block.y * li.block.z); in_kernel = true;
  static char *dyn_arena; static size_t dyn_cap = 256 << 10;
  if (ASAN) { void *q = nullptr; if (posix_memalign(&q, 1024, li.smem ? li.smem : 1)) fail("out of memory"); dyn = (char *)q; }
  else {
    if (!dyn_arena) { dyn_arena = (char *)mmap(nullptr, dyn_cap + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); mprotect(dyn_arena + dyn_cap, 4096, PROT_NONE); }
    dyn = dyn_arena + dyn_cap - ((li.smem + 127) & ~127ul);         // ends at a guard page
  }
  dyn_size = li.smem; host_tsan = TSAN ? __tsan_get_current_fiber() : nullptr; running = &host_stack;
  unsigned nb = li.grid.x * li.grid.y * li.grid.z; std::vector<unsigned> order;
  if (sched) { order.resize(nb); for (unsigned i = 0; i < nb; i++) order[i] = nb - 1 - i; if (sched == 2) std::shuffle(order.begin(), order.end(), rng); }
  device_access(true);
  for (unsigned b = 0; b < nb; b++) {
    unsigned bi = sched ? order[b] : b; blockIdx = {bi % li.grid.x, bi / li.grid.x % li.grid.y, bi / li.grid.x / li.grid.y};
    reset_shared();
    for (int i = 0; i < nthreads; i++) {
      Thread &t = T[i]; unsigned u = unsigned(i);
      t.tid = {u % li.block.x, u / li.block.x % li.block.y, u / (li.block.x * li.block.y)};
      t.lin = i; t.warp = i >> 5; t.lane = i & 31; t.state = UNSTARTED; t.stk = nullptr; t.mask = 0; t.epoch = 0; t.cp_head = t.cp_tail = t.g_head = t.g_tail = t.open = 0;
      if (TSAN) {                                                   // a fresh identity per thread and block: inter-block races are seen
        char name[64]; snprintf(name, sizeof name, "block %u thread %d", bi, i); t.tsan = __tsan_create_fiber(0); __tsan_set_fiber_name(t.tsan, name);
      }
    }
    if (TSAN) {                                                     // idle identities: clang's TSan gives out 255 slots in turn, a thread must not
      static std::deque<void *> idle; static char x; void *me = __tsan_get_current_fiber();   // get the slot that its twin in an earlier block had
      for (int k = 0; k < 3; k++) { idle.push_back(__tsan_create_fiber(0)); __tsan_switch_to_fiber(idle.back(), 1); __tsan_release(&x); __tsan_switch_to_fiber(me, 1); }
      while (idle.size() > 64) { __tsan_destroy_fiber(idle.front()); idle.pop_front(); }
    }
    for (int w = 0; w * 32 < nthreads; w++) { int n = std::min(32, nthreads - w * 32); W[w].live = n == 32 ? ~0u : (1u << n) - 1; W[w].used = W[w].tick = 0; }
    bar = {}; next_start = 0; live_threads = nthreads; rd_head = rd_tail = 0;
    Thread *n = pick(); n->stk = get_stack(); enter(n); swap_to(n->stk, n->tsan);
    cur = nullptr; if (land_head != land_tail) fail("block ends with bulk copies in flight");
    if (TSAN) {                                                     // TSan forgets what finished threads did: let the last ones live on
      static std::deque<void *> old; static const size_t keep = size_t(getenv("CUSIM_TSAN_KEEP") ? atoi(getenv("CUSIM_TSAN_KEEP")) : &cusim_built_by_clang ? 4096 : 0);   // g++ 12: 0.8 MB each
      for (int i = 0; i < nthreads; i++) old.push_back(T[i].tsan);
      while (old.size() > keep) { __tsan_destroy_fiber(old.front()); old.pop_front(); }
    }
    if (cusim_trace_block_end) cusim_trace_block_end(li.fn);
  }
  if (TSAN) __tsan_acquire(&kernel_end_sync);
  device_access(false);
  in_kernel = false; if (ASAN) free(dyn);
}

// ------------------------------------------------------------------ warp-level operations
struct ShflArg { uint64_t v, out; int kind, src, width; const char *file; int line; };
static void shfl_fn(void *const *args, unsigned mask) {
  for (unsigned m = mask; m; m &= m - 1) {
    int l = __builtin_ctz(m), w; auto *a = (ShflArg *)args[l]; w = a->width; int seg = l & ~(w - 1), s = l;
    if (a->kind == SHFL_IDX) s = seg | (a->src & (w - 1));
    else if (a->kind == SHFL_UP) { if (l - a->src >= seg) s = l - a->src; }
    else if (a->kind == SHFL_DOWN) { if (l + a->src < seg + w) s = l + a->src; }
    else if ((l ^ a->src) < seg + w) s = l ^ a->src;
    if (mask >> s & 1) a->out = ((ShflArg *)args[s])->v;
    else { a->out = ~0ull; if (STRICT) fail("shuffle at %s:%d: lane %d reads lane %d, which is not taking part (%08x)", a->file, a->line, l, s, mask); }
  }
}
uint64_t shfl(int kind, unsigned mask, uint64_t v, int src, int width, const char *file, int line) {
  static const char *names[] = {"__shfl_sync", "__shfl_up_sync", "__shfl_down_sync", "__shfl_xor_sync"};
  ShflArg a{v, 0, kind, src, width, file, line}; warp_call(shfl_fn, names[kind], mask, &a, false, file, line); return a.out;
}
struct SumArg { float v; int op; };
static void sum_fn(void *const *args, unsigned mask) {
  float x[32], y[32]; int op = ((SumArg *)args[0])->op;
  if (mask != ~0u) fail("warp reduction needs the whole warp (%08x)", mask);
  for (int l = 0; l < 32; l++) x[l] = ((SumArg *)args[l])->v;
  for (int o = 16; o; o >>= 1) { for (int l = 0; l < 32; l++) y[l] = op == '+' ? x[l] + x[l ^ o] : fmaxf(x[l], x[l ^ o]); for (int l = 0; l < 32; l++) x[l] = y[l]; }
  for (int l = 0; l < 32; l++) ((SumArg *)args[l])->v = x[l];
}
float warp_allreduce(int op, float v, const char *file, int line) { SumArg a{v, op}; warp_call(sum_fn, "warp reduction", ~0u, &a, false, file, line); return a.v; }
struct VoteArg { uint32_t v, out; int op; };
static void vote_fn(void *const *args, unsigned mask) {
  VoteArg *f = (VoteArg *)args[__builtin_ctz(mask)]; uint32_t r = f->v, b = 0;
  for (unsigned m = mask; m; m &= m - 1) {
    int l = __builtin_ctz(m); uint32_t v = ((VoteArg *)args[l])->v; b |= uint32_t(v != 0) << l; if (m == mask) continue;
    switch (f->op) { case '+': r += v; break; case '<': r = std::min(r, v); break; case '>': r = std::max(r, v); break; case '&': r &= v; break; case '|': r |= v; break;
      case '^': r ^= v; break; case 'l': r = uint32_t(std::min(int(r), int(v))); break; case 'g': r = uint32_t(std::max(int(r), int(v))); break; }
  }
  for (unsigned m = mask; m; m &= m - 1) {
    auto *a = (VoteArg *)args[__builtin_ctz(m)];
    a->out = f->op == 'b' ? b : f->op == 'a' ? b == mask : f->op == 'o' ? b != 0 : r;
    if (f->op == 'm') { a->out = 0; for (unsigned k = mask; k; k &= k - 1) a->out |= uint32_t(((VoteArg *)args[__builtin_ctz(k)])->v == a->v) << __builtin_ctz(k); }
  }
}
uint32_t vote(int op, unsigned mask, uint32_t v, const char *file, int line) {
  VoteArg a{v, 0, op}; warp_call(vote_fn, op == 'b' ? "__ballot_sync" : "vote/reduce", mask, &a, false, file, line); return a.out;
}
static float lo16(uint32_t u) { return unbits<float>(uint64_t(u << 16)); }
static float hi16(uint32_t u) { return unbits<float>(uint64_t(u & 0xFFFF0000u)); }
struct MmaArg { float *d; const uint32_t *a, *b; };
#if defined(__x86_64__) && !defined(__clang__)
__attribute__((target_clones("avx2", "default")))                   // no fma: the same bits on every machine
#endif
static void mma_fn(void *const *args, unsigned mask) {
  if (mask != ~0u) fail("mma.sync needs the whole warp (%08x)", mask);
  typedef float v8 __attribute__((vector_size(32), may_alias));
  alignas(32) float A[16][16], B[16][8], C[16][8];
  for (int l = 0; l < 32; l++) {
    auto *x = (MmaArg *)args[l]; int g = l >> 2, t = (l & 3) * 2;
#pragma GCC unroll 4
    for (int q = 0; q < 4; q++) {
      float *p = &A[g + (q & 1) * 8][t + (q >> 1) * 8]; p[0] = lo16(x->a[q]); p[1] = hi16(x->a[q]);
      C[g + (q >> 1) * 8][t + (q & 1)] = x->d[q];
      if (q < 2) { B[t + q * 8][g] = lo16(x->b[q]); B[t + q * 8 + 1][g] = hi16(x->b[q]); }
    }
  }
  for (int i = 0; i < 16; i++) {
    v8 c = *(v8 *)C[i];
#pragma GCC unroll 16
    for (int k = 0; k < 16; k++) c += A[i][k] * *(v8 *)B[k];
    *(v8 *)C[i] = c;
  }
  for (int l = 0; l < 32; l++) { auto *x = (MmaArg *)args[l]; int g = l >> 2, t = (l & 3) * 2;
#pragma GCC unroll 4
    for (int q = 0; q < 4; q++) x->d[q] = C[g + (q >> 1) * 8][t + (q & 1)]; }
}
void mma_m16n8k16(float *d, const uint32_t *a, const uint32_t *b, const char *file, int line) {
  MmaArg x{d, a, b}; warp_call(mma_fn, "mma.sync.m16n8k16", ~0u, &x, false, file, line);
}
struct LdmArg { uint32_t *r; const uint32_t *row; int n; bool trans; };
static void ldm_fn(void *const *args, unsigned mask) {
  if (mask != ~0u) fail("ldmatrix needs the whole warp (%08x)", mask);
  auto row = [&](int l) { return ((LdmArg *)args[l])->row; };
  for (int l = 0; l < 32; l++) {
    auto *x = (LdmArg *)args[l];
    for (int i = 0; i < x->n; i++)
      if (!x->trans) x->r[i] = row(8 * i + l / 4)[l & 3];
      else { int c = l / 4; auto h = [&](int r) { return row(r)[c / 2] >> (c & 1) * 16 & 0xFFFF; }; x->r[i] = h(8 * i + 2 * (l & 3)) | h(8 * i + 2 * (l & 3) + 1) << 16; }
  }
}
void ldmatrix(uint32_t *r, const uint32_t *row16, int n, bool trans, const char *file, int line) {
  LdmArg x{r, row16, n, trans}; warp_call(ldm_fn, trans ? "ldmatrix.trans" : "ldmatrix", ~0u, &x, false, file, line);
}
void cp_async(void *dst, const void *src, int bytes, int valid, const char *file, int line) {
  Thread *t = cur; if (t->cp_tail - t->cp_head == 256) fail("cp.async at %s:%d: more than 256 copies of one thread in flight", file, line);
  CpOp &o = t->cp[t->cp_tail++ & 255]; o.dst = dst; o.src = src; o.bytes = bytes; o.valid = valid; t->open++;
}
void cp_commit() { Thread *t = cur; if (t->g_tail - t->g_head == 256) fail("256 cp.async groups pending"); t->group[t->g_tail++ & 255] = uint16_t(t->open); t->open = 0; }
bool cp_pop(int keep, void **dst, const void **src, int *valid) {   // next copy that cp.async.wait_group keep makes visible
  Thread *t = cur;
  while (int(t->g_tail - t->g_head) > keep && t->group[t->g_head & 255] == 0) t->g_head++;
  if (int(t->g_tail - t->g_head) <= keep) return false;
  t->group[t->g_head & 255]--; CpOp &o = t->cp[t->cp_head++ & 255]; *dst = o.dst; *src = o.src; *valid = o.valid; return true;
}

// ------------------------------------------------------------------ device memory
struct Alloc { char *p, *map; size_t n, map_n; int kind; const char *file; int line; };  // kind 0 device, 1 pinned host, 2 managed
static std::vector<Alloc> allocs;                                   // sorted by address (no std::map: its code in libstdc++.so is opaque to MSan)
static std::vector<std::pair<const void *, int>> smem_attr; static int pkey = -1; static size_t dev_bytes;
static std::vector<Alloc>::iterator above(const void *p) { return std::upper_bound(allocs.begin(), allocs.end(), p, [](const void *x, const Alloc &a) { return (char *)x < a.p; }); }
static const Alloc *find(const void *p, size_t past = 0) {          // past = 1 also takes a pointer just behind the end
  auto it = above(p); if (it == allocs.begin()) return nullptr;
  --it; return (char *)p < it->p + it->n + past ? &*it : nullptr;
}
static void device_access(bool on) { if (pkey > 0) pkey_set(pkey, on ? 0 : PKEY_DISABLE_ACCESS); }
void check_kernel_ptr(const void *p, int i) {
  if (p && !find(p, 1) && STRICT) fail("kernel argument %d (%p) is not a device pointer", i, p);   // misses __device__ globals: pass their allocation
}
static void on_segv(int, siginfo_t *si, void *) {
  char *p = (char *)si->si_addr; fprintf(stderr, "\n==cusim== ERROR: invalid access to %p\n", (void *)p);
  const Alloc *a = nullptr;
  for (auto &x : allocs) if (p >= x.map && p < x.map + x.map_n) a = &x;
  if (a && p >= a->map && p < a->map + a->map_n) {
    if (p < a->p + a->n && p >= a->p) fprintf(stderr, "  host code touched device memory, offset %zd of %zu bytes allocated at %s:%d\n", p - a->p, a->n, a->file, a->line);
    else fprintf(stderr, "  %zd bytes %s a device allocation of %zu bytes made at %s:%d\n", p < a->p ? a->p - p : p - a->p - long(a->n) + 1, p < a->p ? "before" : "past the end of", a->n, a->file, a->line);
  } else if (dyn_size && p >= dyn + dyn_size && p < dyn + dyn_size + 8192) fprintf(stderr, "  %zd bytes past the end of dynamic shared memory (%zu bytes)\n", p - dyn - long(dyn_size) + 1, dyn_size);
  else if (arena && p >= arena && p < arena + 1100 * stack_bytes) fprintf(stderr, "  fiber stack overflow (CUSIM_STACK_KB)\n");
  where(); signal(SIGSEGV, SIG_DFL);                                // return: the access faults again, gdb stops on it
}
static void init_once() {
  static bool done; if (done) return; done = true;
  if (HEAP) return;
  if (env("CUSIM_PKEY", true)) pkey = pkey_alloc(0, PKEY_DISABLE_ACCESS);
  static char alt[65536]; stack_t ss{alt, 0, sizeof alt}; sigaltstack(&ss, nullptr);
  struct sigaction sa{}; sa.sa_sigaction = on_segv; sa.sa_flags = SA_SIGINFO | SA_ONSTACK; sigaction(SIGSEGV, &sa, nullptr);
}
static cudaError_t mem_range(const void *p, size_t n, int want, const char *what, const char *file, int line) {   // want: 0 device, 1 host
  const Alloc *a = find(p); bool dev = a && a->kind != 1;
  if (want == 0 && !dev) fail("%s at %s:%d: %p is not device memory", what, file, line, p);
  if (want == 1 && a && a->kind == 0) fail("%s at %s:%d: %p is device memory, the copy kind says host", what, file, line, p);
  if (a && (char *)p + n > a->p + a->n) fail("%s at %s:%d: %zu bytes at offset %zd overrun an allocation of %zu bytes (made at %s:%d)", what, file, line, n, (char *)p - a->p, a->n, a->file, a->line);
  return cudaSuccess;
}
// for cusim_trace.cpp
struct Place { int kind; unsigned block, launch, phase, epoch; int thread, warp, lane; const char *kernel; };
std::string symbol(const void *fn) { return sym(fn); }
void report_where() { where(); }
Place place_of(const void *p) {
  const char *c = (const char *)p; if (!cur || (arena && c >= arena && c < arena + 1100 * stack_bytes)) return {};
  Place r{3, blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z), n_launch, bar.phase, cur->epoch, cur->lin, cur->warp, cur->lane, nullptr};
  auto [s, n] = static_shared();
  if ((c >= s && c < s + n) || (dyn_size && c >= dyn && c < dyn + dyn_size)) r.kind = 2;
  else if (auto *a = find(p)) r.kind = a->kind == 1 ? 3 : 1;
  else if (p == &threadIdx.x || p == &threadIdx.y || p == &threadIdx.z || p == &blockIdx.x) r.kind = 0;
  return r;
}
}  // namespace cusim
using namespace cusim;

cudaError_t cusim_malloc(void **out, size_t n, int kind, const char *file, int line) {
  init_once(); size_t r = (n + 255) & ~255ul; if (!r) r = 256; Alloc a{nullptr, nullptr, n, 0, kind, file, line};
  if (HEAP) { void *q; if (posix_memalign(&q, 256, n ? n : 1)) return cudaErrorMemoryAllocation; a.p = a.map = (char *)q; a.map_n = n; if (!MSAN && !VALGRIND) fill(q, 0xFF, n); }
  else {
    size_t body = (r + 4095) & ~4095ul; a.map_n = body + 8192;      // guard page, data (right aligned), guard page
    a.map = (char *)mmap(nullptr, a.map_n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0); char *b = a.map + 4096;
    if (pkey > 0 && kind == 0) pkey_mprotect(b, body, PROT_READ | PROT_WRITE, pkey); else mprotect(b, body, PROT_READ | PROT_WRITE);
    a.p = b + body - r; device_access(true); fill(b, 0xFF, body); device_access(false);
  }
  allocs.insert(above(a.p), a); *out = a.p; if (kind == 0) dev_bytes += n; return cudaSuccess;
}
cudaError_t cudaFree(void *p) {
  if (!p) return cudaSuccess;
  cudaDeviceSynchronize(); auto it = above(p);
  if (it == allocs.begin() || (--it)->p != p) fail("cudaFree(%p): not an allocation", p);
  Alloc a = *it; size_t r = (a.n + 255) & ~255ul;
  if (!HEAP) {
    device_access(true); for (size_t i = a.n; i < r; i++) if ((unsigned char)a.p[i] != 0xFF) fail("write %zu bytes past the end of %zu bytes allocated at %s:%d (found at cudaFree)", i - a.n + 1, a.n, a.file, a.line);
    device_access(false); munmap(a.map, a.map_n);
  } else free(a.p);
  if (a.kind == 0) dev_bytes -= a.n;
  allocs.erase(it); return cudaSuccess;
}
cudaError_t cudaFreeHost(void *p) { return cudaFree(p); }

// ------------------------------------------------------------------ streams: lazy queues
struct Op { std::function<void()> f; const char *what; std::vector<std::pair<cudaStream_t, uint64_t>> deps; std::shared_ptr<char> token; };
struct CUSIM_Graph { std::vector<Op> ops; };
struct CUSIM_Stream { std::deque<Op> q; uint64_t done = 0; bool blocking = true; void *tsan = nullptr; CUSIM_Graph *cap = nullptr; char sync; uint64_t tail() const { return done + q.size(); } };
struct CUSIM_Event { cudaStream_t s = nullptr; uint64_t seq = 0; std::shared_ptr<double> time; CUSIM_Graph *cap = nullptr; };
static std::vector<cudaStream_t> streams; static int smode = -1; static std::mt19937 srng;   // 0 lazy, 1 eager, 2 random
static cudaStream_t S(cudaStream_t s) {
  if (streams.empty()) { streams.push_back(new CUSIM_Stream); const char *m = getenv("CUSIM_STREAM"); smode = !m ? 0 : !strncmp(m, "eager", 5) ? 1 : !strncmp(m, "rand", 4) ? 2 : 0;
    if (auto *c = m ? strchr(m, ':') : nullptr) srng.seed(unsigned(atoi(c + 1)));
    if (TSAN) streams[0]->tsan = __tsan_create_fiber(0); }
  return s ? s : streams[0];
}
static void run_until(cudaStream_t s, uint64_t seq) {
  while (s->done < seq) {
    Op op = std::move(s->q.front()); s->q.pop_front();
    for (auto &d : op.deps) run_until(d.first, d.second);
    void *prev = nullptr;
    if (TSAN) { prev = __tsan_get_current_fiber(); __tsan_switch_to_fiber(s->tsan, 1); __tsan_acquire(op.token.get()); for (auto &d : op.deps) __tsan_acquire(&d.first->sync); }
    run_op([&] { if (op.f) op.f(); op.f = nullptr; });              // its captures die in this stream's name too
    if (TSAN) { __tsan_release(&s->sync); __tsan_switch_to_fiber(prev, 1); }
    s->done++;
  }
}
static uint64_t enqueue(cudaStream_t s, Op op) {
  s = S(s); op.token = std::make_shared<char>();
  if (s->cap) { s->cap->ops.push_back(std::move(op)); return 0; }
  if (s == streams[0]) { for (auto o : streams) if (o != s && o->blocking && o->q.size()) op.deps.push_back({o, o->tail()}); }
  else if (s->blocking && streams[0]->q.size()) op.deps.push_back({streams[0], streams[0]->tail()});
  if (TSAN) __tsan_release(op.token.get());
  s->q.push_back(std::move(op)); uint64_t seq = s->tail();
  if (smode == 1) run_until(s, seq);
  if (smode == 2) for (int k = int(srng() % 3); k--;) { auto o = streams[srng() % streams.size()]; if (o->q.size()) run_until(o, o->done + 1); }
  return seq;
}
int cusim_enqueue(cudaStream_t s, const char *what, std::function<void()> f) { enqueue(s, {[f = std::move(f)] { device_access(true); f(); device_access(false); }, what, {}, {}}); return 0; }
static void host_sync(cudaStream_t s) { s = S(s); run_until(s, s->tail()); if (TSAN) __tsan_acquire(&s->sync); }
int cusim::enqueue_kernel(void *stream, const LaunchInfo &li, std::function<void()> f) {
  size_t n = size_t(li.block.x) * li.block.y * li.block.z, lim = 49152;
  for (auto &a : smem_attr) if (a.first == li.fn) lim = size_t(a.second);
  if (!n || n > 1024 || li.block.z > 64 || !li.grid.x || !li.grid.y || !li.grid.z || li.grid.y > 65535 || li.grid.z > 65535)
    fail("kernel %s: bad launch configuration <<<(%u,%u,%u),(%u,%u,%u)>>>", sym(li.fn).c_str(), li.grid.x, li.grid.y, li.grid.z, li.block.x, li.block.y, li.block.z);
  if (li.smem > lim) fail("kernel %s: %zu bytes of dynamic shared memory, limit %zu (cudaFuncSetAttribute raises it)", sym(li.fn).c_str(), li.smem, lim);
  enqueue((cudaStream_t)stream, {[li, f = std::move(f)] { run_kernel(li, f); }, "kernel", {}, {}}); return cudaSuccess;
}
cudaError_t cusim_func_attr(const void *f, int a, int v) {
  if (a == cudaFuncAttributeMaxDynamicSharedMemorySize) { if (v > 232448) fail("MaxDynamicSharedMemorySize %d is over 227 KiB", v); smem_attr.push_back({f, v}); } return cudaSuccess; }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned fl) { S(nullptr); auto *n = new CUSIM_Stream; n->blocking = fl != cudaStreamNonBlocking; if (TSAN) n->tsan = __tsan_create_fiber(0); streams.push_back(n); *s = n; return cudaSuccess; }
cudaError_t cudaStreamCreate(cudaStream_t *s) { return cudaStreamCreateWithFlags(s, 0); }
cudaError_t cudaStreamDestroy(cudaStream_t s) { run_until(s, s->tail()); std::erase(streams, s); return cudaSuccess; }   // object kept: events may name it
cudaError_t cudaStreamSynchronize(cudaStream_t s) { host_sync(s); return cudaSuccess; }
cudaError_t cudaStreamQuery(cudaStream_t s) { s = S(s); if (s->q.empty()) { if (TSAN) __tsan_acquire(&s->sync); return cudaSuccess; } run_until(s, s->done + 1); return cudaErrorNotReady; }
cudaError_t cudaDeviceSynchronize() { S(nullptr); auto v = streams; if (smode == 2) std::shuffle(v.begin(), v.end(), srng); else std::reverse(v.begin(), v.end()); for (auto s : v) host_sync(s); return cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned) { *e = new CUSIM_Event; return cudaSuccess; }
cudaError_t cudaEventCreate(cudaEvent_t *e) { return cudaEventCreateWithFlags(e, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t e) { delete e; return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  s = S(s); e->s = s; e->cap = s->cap; e->time = std::make_shared<double>(0); auto t = e->time;
  e->seq = enqueue(s, {[t] { *t = double(std::chrono::steady_clock::now().time_since_epoch().count()) * 1e-6; if (TSAN) __tsan_release(t.get()); }, "event", {}, {}}); return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
  s = S(s); if (!e->s) return cudaSuccess;                          // never recorded: no wait, as in CUDA
  if (e->cap) { s->cap = e->cap; return cudaSuccess; }              // forked capture: the flat recording order is the order
  auto t = e->time; auto es = e->s; uint64_t q = e->seq;
  enqueue(s, {[t, es, q] { run_until(es, q); if (TSAN) __tsan_acquire(t.get()); }, "wait", {}, {}}); return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t e) { if (e->s) { run_until(e->s, e->seq); if (TSAN) __tsan_acquire(e->time.get()); } return cudaSuccess; }
cudaError_t cudaEventQuery(cudaEvent_t e) { if (!e->s || e->s->done >= e->seq) return cudaEventSynchronize(e); run_until(e->s, e->s->done + 1); return cudaErrorNotReady; }
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b) { cudaEventSynchronize(a); cudaEventSynchronize(b); *ms = float(*b->time - *a->time); return cudaSuccess; }
cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode) { s->cap = new CUSIM_Graph; return cudaSuccess; }
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g) { *g = s->cap; for (auto o : streams) if (o->cap == *g) o->cap = nullptr; return cudaSuccess; }
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *x, cudaGraph_t g, unsigned long long) { *x = new CUSIM_Graph(*g); return cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t s) { enqueue(s, {[x] { for (auto &o : x->ops) if (o.f) o.f(); }, "graph", {}, {}}); return cudaSuccess; }
cudaError_t cudaGraphDestroy(cudaGraph_t g) { delete g; return cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t g) { cudaDeviceSynchronize(); delete g; return cudaSuccess; }
static void copy_op(void *d, const void *s, size_t n) { device_access(true); memmove(d, s, n); device_access(false); }
cudaError_t cudaMemcpyAsync(void *d, const void *s, size_t n, cudaMemcpyKind k, cudaStream_t st, const char *file, int line) {
  if (!n) return cudaSuccess;
  const Alloc *ad = cusim::find(d), *as = cusim::find(s); bool dd = ad && ad->kind != 1, sd = as && as->kind != 1;
  if (k == cudaMemcpyDefault) k = cudaMemcpyKind((sd ? 2 : 0) + (dd ? 1 : 0));
  mem_range(d, n, (k == 1 || k == 3) ? 0 : 1, "cudaMemcpy(destination)", file, line); mem_range(s, n, (k == 2 || k == 3) ? 0 : 1, "cudaMemcpy(source)", file, line);
  if (k == cudaMemcpyHostToDevice && !as) {                         // pageable source: staged before the call returns
    auto buf = std::make_shared<std::vector<char>>(n); memcpy(buf->data(), s, n); enqueue(st, {[=] { copy_op(d, buf->data(), n); }, "memcpy", {}, {}}); return cudaSuccess; }
  if (k == cudaMemcpyDeviceToHost && ad && !MSAN) fill(d, 0xFF, n);          // pinned target: undefined until synchronised
  enqueue(st, {[=] { copy_op(d, s, n); }, "memcpy", {}, {}});
  if (k == cudaMemcpyDeviceToHost && !ad) host_sync(st);            // pageable target: CUDA returns after the copy
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void *d, const void *s, size_t n, cudaMemcpyKind k, const char *file, int line) { cudaMemcpyAsync(d, s, n, k, nullptr, file, line); host_sync(nullptr); return cudaSuccess; }
cudaError_t cudaMemsetAsync(void *d, int v, size_t n, cudaStream_t st, const char *file, int line) {
  mem_range(d, n, 0, "cudaMemset", file, line); enqueue(st, {[=] { device_access(true); memset(d, v, n); device_access(false); }, "memset", {}, {}}); return cudaSuccess; }
cudaError_t cudaMemset(void *d, int v, size_t n, const char *file, int line) { cudaMemsetAsync(d, v, n, nullptr, file, line); return cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetDevice(int *d) { *d = 0; return cudaSuccess; }
cudaError_t cudaGetDeviceCount(int *n) { *n = 1; return cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int *v, cudaDeviceAttr a, int) { *v = a == cudaDevAttrMultiProcessorCount ? 4 : 232448; return cudaSuccess; }
cudaError_t cudaMemGetInfo(size_t *f, size_t *t) { *t = 8ul << 30; *f = *t - dev_bytes; return cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int) { *p = {"cusim host simulator", 9, 0, 4, 2048, 1024, 8ul << 30, 49152, 232448, 233472, 50 << 20}; return cudaSuccess; }

cudaError_t cudaFuncGetName(const char **name, const void *f) { static std::string s; s = sym(f); *name = s.c_str(); return cudaSuccess; }
