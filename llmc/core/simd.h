// llmc/core/simd.h: one vector of floats as wide as the machine's, and the few things that loops of
// plain C++ do not get from the compiler. Everything else is +, -, * and / on Vec, which GCC and
// Clang give to vector types.
#pragma once
#include <cstdint>
#include <cstring>
#if defined(__FMA__)
#include <immintrin.h>
#endif

#include "llmc/core/round.h"

// vec_fma: a * b + c, rounded once where the machine can. vec_min, vec_max: the smaller and the
// larger of a and b; b where either is a NaN.
#if defined(__AVX512F__)
using Vec = __m512;
inline Vec vec_fma(Vec a, Vec b, Vec c) {
    return _mm512_fmadd_ps(a, b, c);
}
inline Vec vec_min(Vec a, Vec b) {
    return _mm512_maskz_min_ps(0xffff, a, b);
}
inline Vec vec_max(Vec a, Vec b) {
    return _mm512_maskz_max_ps(0xffff, a, b);
}
#elif defined(__FMA__)
using Vec = __m256;
inline Vec vec_fma(Vec a, Vec b, Vec c) {
    return _mm256_fmadd_ps(a, b, c);
}
inline Vec vec_min(Vec a, Vec b) {
    return _mm256_min_ps(a, b);
}
inline Vec vec_max(Vec a, Vec b) {
    return _mm256_max_ps(a, b);
}
#else
typedef float Vec __attribute__((vector_size(16), may_alias));
inline Vec vec_fma(Vec a, Vec b, Vec c) {
#if defined(__FP_FAST_FMAF)
    for (int i = 0; i < 4; i++) a[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return a;
#else
    return a * b + c;
#endif
}
inline Vec vec_min(Vec a, Vec b) {
    return a < b ? a : b;
}
inline Vec vec_max(Vec a, Vec b) {
    return a > b ? a : b;
}
#endif
constexpr int kLanes = sizeof(Vec) / sizeof(float);
typedef int32_t VecInt __attribute__((vector_size(sizeof(Vec))));

constexpr int round_to_lanes(int n) {
    return round_up(n, kLanes);
}

// Every lane the same: x - 0 is x in every bit, which x + 0 is not.
inline Vec vec_all(float x) {
    return x - Vec{};
}
inline Vec vec_load(const float* p) {
    Vec v;
    std::memcpy(&v, p, sizeof v);
    return v;
}
inline void vec_store(float* p, Vec v) {
    std::memcpy(p, &v, sizeof v);
}

// The first n lanes only, the others 0; 0 < n <= kLanes.
inline Vec vec_load_first(const float* p, int64_t n) {
    Vec v{};
    std::memcpy(&v, p, size_t(n) * sizeof(float));
    return v;
}
inline void vec_store_first(float* p, Vec v, int64_t n) {
    std::memcpy(p, &v, size_t(n) * sizeof(float));
}

// Over the lanes, by halves.
template <int kHalf = kLanes / 2, class Function>
inline float vec_reduce(Vec v, Function f) {
    VecInt other;
    for (int l = 0; l < kLanes; l++) other[l] = l ^ kHalf;
    v = f(v, __builtin_shuffle(v, other));
    if constexpr (kHalf > 1) return vec_reduce<kHalf / 2>(v, f);
    return v[0];
}
inline float vec_sum_lanes(Vec v) {
    return vec_reduce(v, [](Vec a, Vec b) { return a + b; });
}
inline float vec_max_lanes(Vec v) {
    return vec_reduce(v, vec_max);
}

// Transposes a square of kLanes vectors: in step s, pairs of rows s apart swap their blocks of s
// lanes off the diagonal.
template <int kStep>
inline void vec_transpose_step(Vec (&r)[kLanes]) {
    VecInt low, high;  // lanes 0..kLanes-1 of the first row, then those of the second
    for (int l = 0; l < kLanes; l++) {
        low[l] = l & kStep ? kLanes + l - kStep : l;
        high[l] = l & kStep ? kLanes + l : l + kStep;
    }
    for (int i = 0; i < kLanes; i++) {
        if (i & kStep) continue;
        const Vec a = r[i], b = r[i + kStep];
        r[i] = __builtin_shuffle(a, b, low);
        r[i + kStep] = __builtin_shuffle(a, b, high);
    }
}
inline void vec_transpose(Vec (&r)[kLanes]) {
    vec_transpose_step<1>(r);
    vec_transpose_step<2>(r);
    if constexpr (kLanes > 4) vec_transpose_step<4>(r);
    if constexpr (kLanes > 8) vec_transpose_step<8>(r);
}

// out[i] = f(in[i], ...) for i < n. Every lane is on its own, so the bits do not depend on how n is
// cut or where the tail begins.
template <class Function, class... In>
inline void vec_map(int64_t n, float* out, Function f, const In*... in) {
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) vec_store(out + i, f(vec_load(in + i)...));
    if (i < n) vec_store_first(out + i, f(vec_load_first(in + i, n - i)...), n - i);
}
