// dev/sim: what device code may call: barriers, warp primitives, atomics, intrinsics, hinted loads.
// Everything that may block takes the place of the call as a last, defaulted argument, so that
// reports can name the line.
#pragma once
#include <cmath>

#include "cusim/language.h"

namespace cusim {

// ---- the runtime's side (scheduler.cpp, warp.cpp)
enum class BarrierOp { None, Count, And, Or };
int block_barrier(const char* what, BarrierOp op, int predicate, Where at);

// The one warp collective under all others. Every lane of mask deposits its argument; the last to
// arrive runs `fn` once for all of them, args[lane] for the lanes in `lanes`. `fences` says whether
// the lanes' memory accesses are ordered by it.
using WarpFn = void (*)(void* const* args, unsigned lanes);
void warp_call(WarpFn fn, const char* what, unsigned mask, void* arg, bool fences, Where at);

enum class Shuffle { Index, Up, Down, Xor };
uint64_t shuffle(Shuffle kind, unsigned mask, uint64_t value, int operand, int width, Where at);

enum class Vote { Ballot, All, Any, MatchAny, Add, MinU, MaxU, MinS, MaxS, And, Or, Xor };
uint32_t vote(Vote op, unsigned mask, uint32_t value, Where at);

// Reductions over a whole warp as one collective; the order of additions is the xor butterfly's.
float butterfly_sum(float v, Where at);
float butterfly_max(float v, Where at);

void yield();  // lets other threads run: every loop that spins must call it
void* dyn_smem();
unsigned lane_id();
[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

// Bit copies between a value and the 64 bits that collectives carry.
template <class T>
uint64_t to_bits(T v) {
    static_assert(sizeof(T) <= 8, "collectives move at most 8 bytes a lane");
    uint64_t bits = 0;
    memcpy(&bits, &v, sizeof v);
    return bits;
}
template <class T>
T from_bits(uint64_t bits) {
    T v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

// ---- accesses that trace mode counts as one event, charged to the caller's line: wide loads and
// stores and what the wrappers of tensor.h do. In the other modes this vanishes.
enum class Access {
    Load,
    Store,
    AtomicLoad,
    AtomicStore,
    AtomicUpdate,
    FloatAtomic,  // floating-point atomicAdd
    CopyIssue,    // cp.async: the target, when the copy is issued
    CopyLanding,  // and when it has been waited for
};
#ifdef CUSIM_TRACE
#define CUSIM_ACCESS static __attribute__((noinline, unused, no_sanitize("thread")))
void trace_access(const void* p, unsigned bytes, Access kind, const void* pc);  // trace.cpp
inline __attribute__((always_inline)) void trace(const void* p, unsigned bytes, Access kind) {
    trace_access(p, bytes, kind, __builtin_return_address(0));
}
#else
#define CUSIM_ACCESS inline
inline void trace(const void*, unsigned, Access) {}
#endif

inline void check_aligned(const void* p, size_t bytes, const char* what) {
    if (reinterpret_cast<uintptr_t>(p) % bytes)
        fail("misaligned %zu-byte %s at %p", bytes, what, p);
}
template <class T>
CUSIM_ACCESS T load(const T* p) {
    check_aligned(p, sizeof(T), "load");
    trace(p, sizeof(T), Access::Load);
    return *p;
}
template <class T>
CUSIM_ACCESS void store(T* p, const T& v) {
    check_aligned(p, sizeof(T), "store");
    trace(p, sizeof(T), Access::Store);
    *p = v;
}

}  // namespace cusim

// ---- barriers and warp primitives
#define CUSIM_AT cusim::Where at = cusim::Where::here()

inline void __syncthreads(CUSIM_AT) {
    cusim::block_barrier("__syncthreads", cusim::BarrierOp::None, 0, at);
}
inline int __syncthreads_count(int p, CUSIM_AT) {
    return cusim::block_barrier("__syncthreads_count", cusim::BarrierOp::Count, p, at);
}
inline int __syncthreads_and(int p, CUSIM_AT) {
    return cusim::block_barrier("__syncthreads_and", cusim::BarrierOp::And, p, at);
}
inline int __syncthreads_or(int p, CUSIM_AT) {
    return cusim::block_barrier("__syncthreads_or", cusim::BarrierOp::Or, p, at);
}
inline void __syncwarp(unsigned mask = 0xffffffffu, CUSIM_AT) {
    cusim::warp_call(nullptr, "__syncwarp", mask, nullptr, true, at);
}

#define CUSIM_SHUFFLE(name, kind)                                                               \
    template <class T>                                                                          \
    T name(unsigned mask, T v, int operand, int width = 32, CUSIM_AT) {                         \
        return cusim::from_bits<T>(                                                             \
            cusim::shuffle(cusim::Shuffle::kind, mask, cusim::to_bits(v), operand, width, at)); \
    }
CUSIM_SHUFFLE(__shfl_sync, Index)
CUSIM_SHUFFLE(__shfl_up_sync, Up)
CUSIM_SHUFFLE(__shfl_down_sync, Down)
CUSIM_SHUFFLE(__shfl_xor_sync, Xor)
#undef CUSIM_SHUFFLE

#define CUSIM_VOTE(Result, name, Value, op)                                 \
    inline Result name(unsigned mask, Value v, CUSIM_AT) {                  \
        return Result(cusim::vote(cusim::Vote::op, mask, uint32_t(v), at)); \
    }
CUSIM_VOTE(unsigned, __ballot_sync, int, Ballot)
CUSIM_VOTE(int, __all_sync, int, All)
CUSIM_VOTE(int, __any_sync, int, Any)
CUSIM_VOTE(unsigned, __match_any_sync, unsigned, MatchAny)
CUSIM_VOTE(unsigned, __reduce_add_sync, unsigned, Add)
CUSIM_VOTE(int, __reduce_add_sync, int, Add)
CUSIM_VOTE(unsigned, __reduce_min_sync, unsigned, MinU)
CUSIM_VOTE(unsigned, __reduce_max_sync, unsigned, MaxU)
CUSIM_VOTE(int, __reduce_min_sync, int, MinS)
CUSIM_VOTE(int, __reduce_max_sync, int, MaxS)
CUSIM_VOTE(unsigned, __reduce_and_sync, unsigned, And)
CUSIM_VOTE(unsigned, __reduce_or_sync, unsigned, Or)
CUSIM_VOTE(unsigned, __reduce_xor_sync, unsigned, Xor)
#undef CUSIM_VOTE

// Threads run one at a time, so a fence has nothing to order; a compiler must keep its place.
inline void __threadfence() {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
inline void __threadfence_block() {
    __threadfence();
}
inline void __threadfence_system() {
    __threadfence();
}

// ---- atomics, relaxed as in CUDA
#define CUSIM_ATOMIC(name, T, builtin)          \
    inline T name(T* p, T v) {                  \
        return builtin(p, v, __ATOMIC_RELAXED); \
    }
#define CUSIM_ATOMICS(T)                                                                         \
    CUSIM_ATOMIC(atomicAdd, T, __atomic_fetch_add)                                               \
    CUSIM_ATOMIC(atomicSub, T, __atomic_fetch_sub)                                               \
    CUSIM_ATOMIC(atomicExch, T, __atomic_exchange_n)                                             \
    CUSIM_ATOMIC(atomicAnd, T, __atomic_fetch_and)                                               \
    CUSIM_ATOMIC(atomicOr, T, __atomic_fetch_or)                                                 \
    CUSIM_ATOMIC(atomicXor, T, __atomic_fetch_xor)                                               \
    inline T atomicCAS(T* p, T expected, T v) {                                                  \
        __atomic_compare_exchange_n(p, &expected, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED); \
        return expected;                                                                         \
    }
CUSIM_ATOMICS(int)
CUSIM_ATOMICS(unsigned)
CUSIM_ATOMICS(unsigned long long)
#undef CUSIM_ATOMICS
#undef CUSIM_ATOMIC

namespace cusim {
// *p = f(*p) as a compare-and-swap loop over the bits of T.
template <class Bits, class T, class F>
__attribute__((always_inline)) inline T atomic_update(T* p, F f) {
    Bits* word = reinterpret_cast<Bits*>(p);
    Bits old = __atomic_load_n(word, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(word, &old, Bits(to_bits(f(from_bits<T>(old)))), false,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return from_bits<T>(old);
}
// Floating-point sums by atomics depend on the order of the threads: trace mode reports them.
template <class Bits, class T>
CUSIM_ACCESS T float_atomic_add(T* p, T v) {
    trace(p, sizeof(T), Access::FloatAtomic);
    return atomic_update<Bits>(p, [v](T old) { return T(old + v); });
}
}  // namespace cusim
#define CUSIM_INLINE inline __attribute__((always_inline))
CUSIM_INLINE float atomicAdd(float* p, float v) {
    return cusim::float_atomic_add<uint32_t>(p, v);
}
CUSIM_INLINE double atomicAdd(double* p, double v) {
    return cusim::float_atomic_add<uint64_t>(p, v);
}
#define CUSIM_ATOMIC_MINMAX(T, Bits)                                                    \
    inline T atomicMax(T* p, T v) {                                                     \
        return cusim::atomic_update<Bits>(p, [v](T old) { return old > v ? old : v; }); \
    }                                                                                   \
    inline T atomicMin(T* p, T v) {                                                     \
        return cusim::atomic_update<Bits>(p, [v](T old) { return old < v ? old : v; }); \
    }
CUSIM_ATOMIC_MINMAX(int, uint32_t)
CUSIM_ATOMIC_MINMAX(unsigned, uint32_t)
CUSIM_ATOMIC_MINMAX(long long, uint64_t)
CUSIM_ATOMIC_MINMAX(unsigned long long, uint64_t)
#undef CUSIM_ATOMIC_MINMAX
inline unsigned atomicInc(unsigned* p, unsigned last) {
    return cusim::atomic_update<uint32_t>(
        p, [last](unsigned old) { return old >= last ? 0u : old + 1; });
}

// ---- arithmetic. The approximate intrinsics are exact here: tolerances must allow for the GPU's.
// Those that promise one rounding rely on -ffp-contract=off.
inline float rsqrtf(float x) {
    return 1.0f / sqrtf(x);
}
inline float __frsqrt_rn(float x) {
    return 1.0f / sqrtf(x);
}
inline float __fsqrt_rn(float x) {
    return sqrtf(x);
}
inline float __frcp_rn(float x) {
    return 1.0f / x;
}
inline float __fdividef(float a, float b) {
    return a / b;
}
inline float __fdiv_rn(float a, float b) {
    return a / b;
}
inline float __fmaf_rn(float a, float b, float c) {
    return fmaf(a, b, c);
}
inline float __fadd_rn(float a, float b) {
    return a + b;
}
inline float __fsub_rn(float a, float b) {
    return a - b;
}
inline float __fmul_rn(float a, float b) {
    return a * b;
}
inline float __expf(float x) {
    return expf(x);
}
inline float __exp2f(float x) {
    return exp2f(x);
}
inline float __logf(float x) {
    return logf(x);
}
inline float __log2f(float x) {
    return log2f(x);
}
inline unsigned __float_as_uint(float f) {
    return cusim::from_bits<unsigned>(cusim::to_bits(f));
}
inline int __float_as_int(float f) {
    return int(__float_as_uint(f));
}
inline float __uint_as_float(unsigned u) {
    return cusim::from_bits<float>(cusim::to_bits(u));
}
inline float __int_as_float(int i) {
    return __uint_as_float(unsigned(i));
}
inline long long __double_as_longlong(double d) {
    return cusim::from_bits<long long>(cusim::to_bits(d));
}
inline double __longlong_as_double(long long i) {
    return cusim::from_bits<double>(cusim::to_bits(i));
}
// Rounding conversions of the default mode: to nearest, ties to even.
inline int __float2int_rn(float x) {
    return int(rintf(x));
}
inline long long __float2ll_rn(float x) {
    return llrintf(x);
}
inline long long __double2ll_rn(double x) {
    return llrint(x);
}
inline float __double2float_rn(double x) {
    return float(x);
}
inline float __ll2float_rn(long long x) {
    return float(x);
}
inline double __ll2double_rn(long long x) {
    return double(x);
}
inline int __popc(unsigned x) {
    return __builtin_popcount(x);
}
inline int __popcll(unsigned long long x) {
    return __builtin_popcountll(x);
}
inline int __clz(int x) {
    return x ? __builtin_clz(unsigned(x)) : 32;
}
inline int __clzll(long long x) {
    return x ? __builtin_clzll(uint64_t(x)) : 64;
}
inline int __ffs(int x) {
    return __builtin_ffs(x);
}
inline unsigned __umulhi(unsigned a, unsigned b) {
    return unsigned(uint64_t(a) * b >> 32);
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    shift &= 31;
    return shift ? high << shift | low >> (32 - shift) : high;
}
inline long long clock64() {
    return 0;
}
inline void __nanosleep(unsigned) {
    cusim::yield();
}
inline void __trap() {
    cusim::fail("__trap()");
}

#define CUSIM_MINMAX(T)         \
    constexpr T min(T a, T b) { \
        return b < a ? b : a;   \
    }                           \
    constexpr T max(T a, T b) { \
        return a < b ? b : a;   \
    }
CUSIM_MINMAX(int)
CUSIM_MINMAX(unsigned)
CUSIM_MINMAX(long)
CUSIM_MINMAX(unsigned long)
CUSIM_MINMAX(long long)
CUSIM_MINMAX(unsigned long long)
#undef CUSIM_MINMAX
inline float min(float a, float b) {
    return fminf(a, b);
}
inline float max(float a, float b) {
    return fmaxf(a, b);
}
inline double min(double a, double b) {
    return fmin(a, b);
}
inline double max(double a, double b) {
    return fmax(a, b);
}

// ---- loads and stores with cache hints: one access of sizeof(T) bytes
#define CUSIM_LOAD(name)              \
    template <class T>                \
    CUSIM_INLINE T name(const T* p) { \
        return cusim::load(p);        \
    }
#define CUSIM_STORE(name)               \
    template <class T>                  \
    CUSIM_INLINE void name(T* p, T v) { \
        cusim::store(p, v);             \
    }
CUSIM_LOAD(__ldg)
CUSIM_LOAD(__ldcs)
CUSIM_LOAD(__ldcg)
CUSIM_LOAD(__ldca)
CUSIM_LOAD(__ldlu)
CUSIM_STORE(__stcs)
CUSIM_STORE(__stcg)
CUSIM_STORE(__stwb)
CUSIM_STORE(__stwt)
#undef CUSIM_LOAD
#undef CUSIM_STORE
