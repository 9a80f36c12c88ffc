// dev/sim: keywords, vector types and built-in variables of CUDA C++, for a host compiler.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#ifndef CUSIM
#define CUSIM 1
#endif

// ---- keywords
#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
#define __forceinline__ inline __attribute__((always_inline))
// __noinline__ stays undefined: libstdc++ uses the word itself.

// A shared variable is a plain static, since blocks run one after another. The ABI tag shows in the
// symbol table, where the runtime finds every shared variable with its owner, address and size.
// 16 bytes of alignment: neighbours then never share a granule of a sanitizer.
#define __shared__ static __attribute__((abi_tag("cusim_shared"), aligned(16)))

// __launch_bounds__(n, ...): the bound is kept as n no-operations in front of the kernel, which
// cost nothing and which the runtime can count (symbols.cpp). No other attribute of g++ takes any
// constant expression, template parameters included, and leaves a trace in the program.
// sizeof(char[n]) is n, folded early enough for the attribute. clang takes literals only.
#ifdef __clang__
#define __launch_bounds__(...)
#else
#define __launch_bounds__(n, ...) \
    __attribute__((patchable_function_entry(sizeof(char[n]), sizeof(char[n]))))
#endif

namespace cusim {
// A place in the source. As a default argument it is the place of the call.
struct Where {
    const char* file;
    int line;
    static constexpr Where here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
        return {file, line};
    }
};
}  // namespace cusim

// ---- vector types
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

#define CUSIM_VECTOR(T, name)                                           \
    struct __align__(2 * sizeof(T)) name##2 {                           \
        T x, y;                                                         \
    };                                                                  \
    struct name##3 {                                                    \
        T x, y, z;                                                      \
    };                                                                  \
    struct __align__(4 * sizeof(T) > 16 ? 16 : 4 * sizeof(T)) name##4 { \
        T x, y, z, w;                                                   \
    };                                                                  \
    constexpr name##2 make_##name##2(T x, T y) {                        \
        return {x, y};                                                  \
    }                                                                   \
    constexpr name##3 make_##name##3(T x, T y, T z) {                   \
        return {x, y, z};                                               \
    }                                                                   \
    constexpr name##4 make_##name##4(T x, T y, T z, T w) {              \
        return {x, y, z, w};                                            \
    }
CUSIM_VECTOR(float, float)
CUSIM_VECTOR(double, double)
CUSIM_VECTOR(int, int)
CUSIM_VECTOR(unsigned, uint)
CUSIM_VECTOR(short, short)
CUSIM_VECTOR(unsigned short, ushort)
CUSIM_VECTOR(signed char, char)
CUSIM_VECTOR(unsigned char, uchar)
CUSIM_VECTOR(long long, longlong)
CUSIM_VECTOR(unsigned long long, ulonglong)
#undef CUSIM_VECTOR

// ---- built-in variables; set at every switch of threads. Plain globals, so a debugger prints them
// and breakpoints can ask for a thread.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
constexpr int warpSize = 32;
