// llmc/ops/reduce_sums.h: sums whose bits do not depend on order, cut or number of ranks.
//
// Floating-point addition is not associative, integer addition is. So what is summed over ranks,
// micro-batches or slices is first turned into fixed point and added as integers: gradients with
// 2^-44 as the unit in 64 bits, squared norms and losses with 2^-80 as the unit in 128 bits.
// Derivation and ranges: dev/doc/numerics.md.
// Definition: reduce_sums_cpu.cpp.  Fast: reduce_sums.cu.  Proof: reduce_sums_test.cpp.
#pragma once
#include <cstdint>

#include "llmc/core/backend.h"

// Gradients: M addends, each below 2^18 / M in magnitude, add up to less than 2^62 units of 2^-44
// in whatever order and on however many ranks. So what is too large is decided addend by addend, by
// the number of addends of the whole step. The error is at most 2^-45 per addend.
constexpr double kGradScale = 0x1p44;  // units in 1
inline float grad_limit(int64_t addends) {
    return 0x1p18f / float(addends);
}
// Elements that are squared and summed in floating point first; every slice of a tensor starts at a
// multiple of it.
constexpr int kSumChunk = 64;

// A fixed-point sum as three limbs, value = (hi * 2^100 + mid * 2^50 + lo) * 2^-80, with
// 0 <= mid, lo < 2^50: a value has one representation. The four words of many ranks may be added as
// plain int64 (up to 8192 ranks); fixed_sum_value takes them as they then are. |sum| < 2^70, the
// error is at most 2^-81 per addend.
// `bad` counts addends that were not finite, were not below 2^64 in magnitude, or took the sum out
// of range. The range is that of the whole: sums of addends of one sign, as squares and losses are,
// leave it on any number of ranks or on none.
struct FixedSum {
    int64_t hi = 0, mid = 0, lo = 0, bad = 0;
};
void fixed_sum_add(FixedSum& sum, double x);
void fixed_sum_add(FixedSum& sum, const FixedSum& other);
double fixed_sum_value(const FixedSum& sum);  // NaN where bad > 0 or |sum| >= 2^70

// sum += sum_i x[i]^2, in chunks of kSumChunk counted from x; squares and chunk sums in double.
void sum_of_squares(FixedSum* sum,   // (1)  +=
                    const float* x,  // (n)
                    size_t n, CpuStream s);
void sum_of_squares(FixedSum* sum, const float* x, size_t n, CudaStream s);

// sum += sum_i x[i], each element converted on its own (for losses).
void sum_of_elements(FixedSum* sum, const float* x, size_t n, CpuStream s);
void sum_of_elements(FixedSum* sum, const float* x, size_t n, CudaStream s);

// acc += round(x * 2^44), ties to even, and x = 0, ready for the next micro-batch. A value that is
// not below the limit in magnitude, or not a number, sets *bad to 1 instead.
void accumulate_fixed(int64_t* acc,  // (n)  +=
                      float* x,      // (n)  in: gradient, out: 0
                      float limit,   // grad_limit(micro-batches of the step, over all ranks)
                      int* bad,      // (1)
                      size_t n, CpuStream s);
void accumulate_fixed(int64_t* acc, float* x, float limit, int* bad, size_t n, CudaStream s);

// The same in fp32, for sums whose order does not matter to anybody: acc += x and x = 0.
void accumulate_float(float* acc,  // (n)  +=
                      float* x,    // (n)  in: gradient, out: 0
                      size_t n, CpuStream s);
void accumulate_float(float* acc, float* x, size_t n, CudaStream s);

// x = acc * 2^-44, rounded once to float.
void fixed_to_float(float* x,            // (n)  =
                    const int64_t* acc,  // (n)
                    size_t n, CpuStream s);
void fixed_to_float(float* x, const int64_t* acc, size_t n, CudaStream s);
