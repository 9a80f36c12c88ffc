// cusim.h - host simulator of the CUDA device language and runtime API.
// Compile a .cu as plain C++:  g++ -std=c++20 -x c++ -Isim k.cu sim/cusim.cpp
// Rules the sources keep to, so that nvcc and g++ both take them:
//   * launch(kernel, grid, block, smem, stream, args...)   instead of <<<>>>
//   * dyn_smem<T>() (llmc/launch.cuh)                       instead of extern __shared__
//   * PTX only inside thin wrappers (llmc/tensorop.cuh)     instead of asm in kernels
#pragma once
#ifndef CUSIM
#define CUSIM 1
#endif
#include <cassert>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

// ---------------------------------------------------------------- keywords
#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __forceinline__ inline __attribute__((always_inline))
// __noinline__ is left undefined on purpose: libstdc++ uses that word itself.
#ifndef __has_feature
#define __has_feature(x) 0
#endif
#define __shared__ static
// every function that may block takes the caller's place as default arguments
#define CUSIM_AT const char *file_ = __builtin_FILE(), int line_ = __builtin_LINE()
#define CUSIM_HERE file_, line_

// ---------------------------------------------------------------- vector types
struct dim3 { unsigned x, y, z; constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {} };
struct uint3 { unsigned x, y, z; };
#define CUSIM_VEC(T, N)                                                                                   \
  struct __align__(2 * sizeof(T)) N##2 { T x, y; };                                                       \
  struct N##3 { T x, y, z; };                                                                             \
  struct __align__(4 * sizeof(T) > 16 ? 16 : 4 * sizeof(T)) N##4 { T x, y, z, w; };                       \
  constexpr N##2 make_##N##2(T x, T y) { return {x, y}; }                                                 \
  constexpr N##4 make_##N##4(T x, T y, T z, T w) { return {x, y, z, w}; }
#define CUSIM_VEC_U(T, N)                                                                                 \
  struct __align__(2 * sizeof(T)) N##2 { T x, y; };                                                       \
  struct __align__(4 * sizeof(T) > 16 ? 16 : 4 * sizeof(T)) N##4 { T x, y, z, w; };                       \
  constexpr N##2 make_##N##2(T x, T y) { return {x, y}; }                                                 \
  constexpr N##4 make_##N##4(T x, T y, T z, T w) { return {x, y, z, w}; }
CUSIM_VEC(float, float) CUSIM_VEC(int, int) CUSIM_VEC(double, double) CUSIM_VEC_U(unsigned, uint)
CUSIM_VEC(short, short) CUSIM_VEC(unsigned short, ushort) CUSIM_VEC(unsigned char, uchar)

// ---------------------------------------------------------------- SIMT core (cusim.cpp)
extern uint3 threadIdx, blockIdx;              // set at every fiber switch; plain globals so gdb prints them
extern dim3 blockDim, gridDim;
constexpr int warpSize = 32;

namespace cusim {
using WarpFn = void (*)(void *const *args, unsigned mask);   // args[lane], lanes of mask only
void sync_block(const char *what, int *pred, int op, const char *, int);
// all live lanes of mask deposit arg; the last arriver runs fn for everybody
void warp_call(WarpFn fn, const char *what, unsigned mask, void *arg, bool memory_order, const char *, int);
enum { SHFL_IDX, SHFL_UP, SHFL_DOWN, SHFL_XOR };
uint64_t shfl(int kind, unsigned mask, uint64_t v, int src, int width, const char *, int);
uint32_t vote(int op, unsigned mask, uint32_t v, const char *, int);  // op: 'b' 'a' 'o' '+' '<' '>' 'l' 'g' '&' '|' '^' 'm'
float warp_allreduce(int op, float v, const char *, int);           // '+' or '>' over a whole warp, in the order of the xor butterfly
void yield();                                                       // lets other threads run: spin loops must call it
void *dyn_smem();
unsigned lane_id(), warp_id(), active_mask();
[[noreturn]] void fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void cp_async(void *dst, const void *src, int bytes, int valid, const char *, int);
void cp_commit();
void cp_wait(int keep);
void mma_m16n8k16(float *d, const uint32_t *a, const uint32_t *b, const char *, int);
void ldmatrix(uint32_t *r, const uint32_t *row16, int n, bool trans, const char *, int);
// optional per-access tracing (trace mode only; otherwise a null pointer test)
extern void (*trace)(const void *p, unsigned bytes, bool write, void *pc);
inline __attribute__((always_inline)) void touch(const void *p, unsigned n, bool w) {
  if (__builtin_expect(trace != nullptr, 0)) trace(p, n, w, __builtin_return_address(0));
}
template <class T> uint64_t bits(T v) { static_assert(sizeof(T) <= 8); uint64_t b = 0; memcpy(&b, &v, sizeof v); return b; }
template <class T> T unbits(uint64_t b) { T v; memcpy(&v, &b, sizeof v); return v; }
void check_kernel_ptr(const void *p, int argno);
struct LaunchInfo { const void *fn; dim3 grid, block; size_t smem; const char *file; int line; };
int enqueue_kernel(void *stream, const LaunchInfo &, std::function<void()> body);
}  // namespace cusim

// ---------------------------------------------------------------- barriers and warp primitives
inline void __syncthreads(CUSIM_AT) { cusim::sync_block("__syncthreads", nullptr, 0, CUSIM_HERE); }
inline int __syncthreads_count(int p, CUSIM_AT) { cusim::sync_block("__syncthreads_count", &p, '+', CUSIM_HERE); return p; }
inline int __syncthreads_and(int p, CUSIM_AT) { cusim::sync_block("__syncthreads_and", &p, 'a', CUSIM_HERE); return p; }
inline int __syncthreads_or(int p, CUSIM_AT) { cusim::sync_block("__syncthreads_or", &p, 'o', CUSIM_HERE); return p; }
inline void __syncwarp(unsigned mask = ~0u, CUSIM_AT) { cusim::warp_call(nullptr, "__syncwarp", mask, nullptr, true, CUSIM_HERE); }
#define CUSIM_SHFL(name, kind)                                                                            \
  template <class T> inline T name(unsigned mask, T v, int s, int width = 32, CUSIM_AT) {                 \
    return cusim::unbits<T>(cusim::shfl(cusim::kind, mask, cusim::bits(v), s, width, CUSIM_HERE));        \
  }
CUSIM_SHFL(__shfl_sync, SHFL_IDX) CUSIM_SHFL(__shfl_up_sync, SHFL_UP)
CUSIM_SHFL(__shfl_down_sync, SHFL_DOWN) CUSIM_SHFL(__shfl_xor_sync, SHFL_XOR)
inline unsigned __ballot_sync(unsigned m, int p, CUSIM_AT) { return cusim::vote('b', m, p != 0, CUSIM_HERE); }
inline int __all_sync(unsigned m, int p, CUSIM_AT) { return cusim::vote('a', m, p != 0, CUSIM_HERE); }
inline int __any_sync(unsigned m, int p, CUSIM_AT) { return cusim::vote('o', m, p != 0, CUSIM_HERE); }
inline unsigned __match_any_sync(unsigned m, unsigned v, CUSIM_AT) { return cusim::vote('m', m, v, CUSIM_HERE); }
inline unsigned __reduce_add_sync(unsigned m, unsigned v, CUSIM_AT) { return cusim::vote('+', m, v, CUSIM_HERE); }
inline int __reduce_add_sync(unsigned m, int v, CUSIM_AT) { return int(cusim::vote('+', m, unsigned(v), CUSIM_HERE)); }
inline unsigned __reduce_min_sync(unsigned m, unsigned v, CUSIM_AT) { return cusim::vote('<', m, v, CUSIM_HERE); }
inline unsigned __reduce_max_sync(unsigned m, unsigned v, CUSIM_AT) { return cusim::vote('>', m, v, CUSIM_HERE); }
inline int __reduce_min_sync(unsigned m, int v, CUSIM_AT) { return int(cusim::vote('l', m, unsigned(v), CUSIM_HERE)); }
inline int __reduce_max_sync(unsigned m, int v, CUSIM_AT) { return int(cusim::vote('g', m, unsigned(v), CUSIM_HERE)); }
inline unsigned __reduce_and_sync(unsigned m, unsigned v, CUSIM_AT) { return cusim::vote('&', m, v, CUSIM_HERE); }
inline unsigned __reduce_or_sync(unsigned m, unsigned v, CUSIM_AT) { return cusim::vote('|', m, v, CUSIM_HERE); }
inline unsigned __reduce_xor_sync(unsigned m, unsigned v, CUSIM_AT) { return cusim::vote('^', m, v, CUSIM_HERE); }
inline unsigned __activemask() { return cusim::active_mask(); }
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() { __threadfence(); }
inline void __threadfence_system() { __threadfence(); }

// ---------------------------------------------------------------- atomics (relaxed, as in CUDA)
#define CUSIM_RMW(name, T, builtin) inline T name(T *p, T v) { return builtin(p, v, __ATOMIC_RELAXED); }
#define CUSIM_RMW3(T)                                                                                     \
  CUSIM_RMW(atomicAdd, T, __atomic_fetch_add) CUSIM_RMW(atomicSub, T, __atomic_fetch_sub)                 \
  CUSIM_RMW(atomicExch, T, __atomic_exchange_n) CUSIM_RMW(atomicAnd, T, __atomic_fetch_and)               \
  CUSIM_RMW(atomicOr, T, __atomic_fetch_or)                                                               \
  inline T atomicCAS(T *p, T c, T v) { __atomic_compare_exchange_n(p, &c, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED); return c; }
CUSIM_RMW3(int) CUSIM_RMW3(unsigned) CUSIM_RMW3(unsigned long long)
namespace cusim {
template <class U, class T, class F> inline T rmw(T *p, F f) {   // compare-and-swap loop
  U *u = reinterpret_cast<U *>(p), old = __atomic_load_n(u, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(u, &old, U(bits(f(unbits<T>(old)))), false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
  return unbits<T>(old);
}
}  // namespace cusim
inline float atomicAdd(float *p, float v) { return cusim::rmw<uint32_t>(p, [v](float o) { return o + v; }); }
inline double atomicAdd(double *p, double v) { return cusim::rmw<uint64_t>(p, [v](double o) { return o + v; }); }
inline int atomicMax(int *p, int v) { return cusim::rmw<uint32_t>(p, [v](int o) { return o > v ? o : v; }); }
inline int atomicMin(int *p, int v) { return cusim::rmw<uint32_t>(p, [v](int o) { return o < v ? o : v; }); }
inline unsigned atomicInc(unsigned *p, unsigned m) { return cusim::rmw<uint32_t>(p, [m](unsigned o) { return o >= m ? 0u : o + 1; }); }

// ---------------------------------------------------------------- arithmetic intrinsics
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float x) { return expf(x); }
inline float __exp2f(float x) { return exp2f(x); }
inline float __logf(float x) { return logf(x); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
// Rounded once each, never contracted: the simulator is compiled with -ffp-contract=off.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline long long __double2ll_rn(double x) { return __builtin_llrint(x); }
inline float __ll2float_rn(long long x) { return float(x); }
inline unsigned __float_as_uint(float f) { return cusim::unbits<unsigned>(cusim::bits(f)); }
inline int __float_as_int(float f) { return int(__float_as_uint(f)); }
inline float __uint_as_float(unsigned u) { return cusim::unbits<float>(u); }
inline float __int_as_float(int i) { return __uint_as_float(unsigned(i)); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned(uint64_t(a) * b >> 32); }
inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned s) { return s & 31 ? hi << (s & 31) | lo >> (32 - (s & 31)) : hi; }
inline long long clock64() { return 0; }
inline void __nanosleep(unsigned) { cusim::yield(); }
inline void __trap() { cusim::fail("__trap()"); }
#define CUSIM_MINMAX(T) inline T min(T a, T b) { return b < a ? b : a; } inline T max(T a, T b) { return a < b ? b : a; }
CUSIM_MINMAX(int) CUSIM_MINMAX(unsigned) CUSIM_MINMAX(long) CUSIM_MINMAX(unsigned long) CUSIM_MINMAX(long long)
CUSIM_MINMAX(unsigned long long) CUSIM_MINMAX(float) CUSIM_MINMAX(double)
// cache-hinted loads and stores: one access of sizeof(T); a misaligned pointer is reported
#ifdef CUSIM_TRACE                                 // one event per wide access, with its caller's address
#define CUSIM_WRAP __attribute__((noinline, no_sanitize("thread")))
#else
#define CUSIM_WRAP inline
#endif
namespace cusim {
template <class T> CUSIM_WRAP T load(const T *p) {
  if (reinterpret_cast<uintptr_t>(p) % sizeof(T)) fail("misaligned %zu-byte load at %p", sizeof(T), (const void *)p);
  touch(p, sizeof(T), false);
  return *p;
}
template <class T> CUSIM_WRAP void store(T *p, const T &v) {
  if (reinterpret_cast<uintptr_t>(p) % sizeof(T)) fail("misaligned %zu-byte store at %p", sizeof(T), (void *)p);
  touch(p, sizeof(T), true);
  *p = v;
}
}  // namespace cusim
#define CUSIM_LD(n) template <class T> inline __attribute__((always_inline)) T n(const T *p) { return cusim::load(p); }
#define CUSIM_ST(n) template <class T> inline __attribute__((always_inline)) void n(T *p, T v) { cusim::store(p, v); }
CUSIM_LD(__ldg) CUSIM_LD(__ldcs) CUSIM_LD(__ldcg) CUSIM_LD(__ldca) CUSIM_ST(__stcs) CUSIM_ST(__stcg) CUSIM_ST(__stwt)

// ---------------------------------------------------------------- runtime API subset
enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorMemoryAllocation = 2, cudaErrorInvalidConfiguration = 9,
                   cudaErrorNotReady = 600, cudaErrorUnknown = 999 };
enum cudaMemcpyKind { cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice, cudaMemcpyDefault };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8, cudaFuncAttributePreferredSharedMemoryCarveout = 9 };
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount = 16, cudaDevAttrMaxSharedMemoryPerBlockOptin = 97 };
typedef struct CUSIM_Stream *cudaStream_t;
typedef struct CUSIM_Event *cudaEvent_t;
typedef struct CUSIM_Graph *cudaGraph_t, *cudaGraphExec_t;
enum { cudaStreamDefault = 0, cudaStreamNonBlocking = 1, cudaEventDefault = 0, cudaEventDisableTiming = 2 };
enum cudaStreamCaptureMode { cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed };
struct cudaLaunchAttribute { int id; int val[16]; };
struct cudaLaunchConfig_t { dim3 gridDim, blockDim; size_t dynamicSmemBytes; cudaStream_t stream; cudaLaunchAttribute *attrs; unsigned numAttrs; };
struct cudaDeviceProp { char name[256]; int major, minor, multiProcessorCount, maxThreadsPerMultiProcessor, maxThreadsPerBlock;
                        size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin, sharedMemPerMultiprocessor; int l2CacheSize; };
cudaError_t cusim_malloc(void **p, size_t n, int kind, const char *, int);
template <class T> cudaError_t cudaMalloc(T **p, size_t n, CUSIM_AT) { return cusim_malloc((void **)p, n, 0, CUSIM_HERE); }
template <class T> cudaError_t cudaMallocHost(T **p, size_t n, unsigned = 0, CUSIM_AT) { return cusim_malloc((void **)p, n, 1, CUSIM_HERE); }
template <class T> cudaError_t cudaMallocManaged(T **p, size_t n, unsigned = 1, CUSIM_AT) { return cusim_malloc((void **)p, n, 2, CUSIM_HERE); }
cudaError_t cudaFree(void *), cudaFreeHost(void *);
cudaError_t cudaMemcpy(void *d, const void *s, size_t n, cudaMemcpyKind, CUSIM_AT);
cudaError_t cudaMemcpyAsync(void *d, const void *s, size_t n, cudaMemcpyKind, cudaStream_t = nullptr, CUSIM_AT);
cudaError_t cudaMemset(void *d, int v, size_t n, CUSIM_AT), cudaMemsetAsync(void *d, int v, size_t n, cudaStream_t = nullptr, CUSIM_AT);
cudaError_t cudaStreamCreate(cudaStream_t *), cudaStreamCreateWithFlags(cudaStream_t *, unsigned), cudaStreamDestroy(cudaStream_t);
cudaError_t cudaStreamSynchronize(cudaStream_t), cudaStreamQuery(cudaStream_t), cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned = 0);
cudaError_t cudaEventCreate(cudaEvent_t *), cudaEventCreateWithFlags(cudaEvent_t *, unsigned), cudaEventDestroy(cudaEvent_t);
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t = nullptr), cudaEventSynchronize(cudaEvent_t), cudaEventQuery(cudaEvent_t);
cudaError_t cudaEventElapsedTime(float *, cudaEvent_t, cudaEvent_t), cudaDeviceSynchronize(), cudaGetLastError();
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode), cudaStreamEndCapture(cudaStream_t, cudaGraph_t *);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *, cudaGraph_t, unsigned long long = 0), cudaGraphLaunch(cudaGraphExec_t, cudaStream_t);
cudaError_t cudaGraphDestroy(cudaGraph_t), cudaGraphExecDestroy(cudaGraphExec_t);
cudaError_t cudaSetDevice(int), cudaGetDevice(int *), cudaGetDeviceCount(int *), cudaGetDeviceProperties(cudaDeviceProp *, int);
cudaError_t cudaDeviceGetAttribute(int *, cudaDeviceAttr, int), cudaMemGetInfo(size_t *, size_t *);
cudaError_t cusim_func_attr(const void *f, int attr, int v);
template <class F> cudaError_t cudaFuncSetAttribute(F *f, cudaFuncAttribute a, int v) { return cusim_func_attr((const void *)f, a, v); }
inline cudaError_t cudaFuncSetAttribute(const void *f, cudaFuncAttribute a, int v) { return cusim_func_attr(f, a, v); }
inline const char *cudaGetErrorString(cudaError_t e) { return e == cudaSuccess ? "no error" : "cusim error"; }
#define CUDART_VERSION 12080
cudaError_t cudaFuncGetName(const char **name, const void *f);
inline const char *cudaGetErrorName(cudaError_t e) { return cudaGetErrorString(e); }
template <class T> cudaError_t cudaMemcpyToSymbol(T &sym, const void *s, size_t n, size_t off = 0) {
  cudaDeviceSynchronize(); memcpy((char *)&sym + off, s, n); return cudaSuccess; }
template <class T> cudaError_t cudaMemcpyFromSymbol(void *d, const T &sym, size_t n, size_t off = 0) {
  cudaDeviceSynchronize(); memcpy(d, (const char *)&sym + off, n); return cudaSuccess; }
// run a host closure as a stream operation (cuBLAS/NCCL shims use it)
int cusim_enqueue(cudaStream_t s, const char *what, std::function<void()> f);

template <class... P, class... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *c, void (*kernel)(P...), A &&...a) {
  static_assert(sizeof...(P) == sizeof...(A), "wrong number of kernel arguments");
  std::tuple<P...> args(static_cast<P>(std::forward<A>(a))...);        // arguments are copied at launch time
  int i = 0;
  std::apply([&](auto &...x) { ([&] { if constexpr (std::is_pointer_v<std::decay_t<decltype(x)>>) cusim::check_kernel_ptr((const void *)x, i); ++i; }(), ...); }, args);
  cusim::LaunchInfo li{(const void *)kernel, c->gridDim, c->blockDim, c->dynamicSmemBytes, nullptr, 0};
  return cudaError_t(cusim::enqueue_kernel(c->stream, li, [kernel, args] { std::apply(kernel, args); }));
}
