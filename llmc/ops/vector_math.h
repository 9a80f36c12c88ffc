// llmc/ops/vector_math.h: exp and GELU as straight lines of arithmetic, so that a loop over them
// becomes vector instructions (mark it `#pragma omp simd`).
//
// Every operation here is correctly rounded and std::fma is written where it is meant, so an
// element has the same bits in a vector body and in a scalar tail, wherever it lies.
// Proof: vector_math_test.cpp.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

// e^x, within 1 ulp over the whole range: overflows to infinity, underflows through the subnormals
// to 0, passes NaN on.
//   x = n ln2 + r with |r| <= ln2 / 2, so e^x = 2^n (1 + r + r^2 q(r))
// q is the polynomial of degree 4 with the least largest relative error, 3.1e-9 or 0.05 ulp
// (Remez exchange in 40 digits). ln2 is split in two so that x - n ln2 keeps its low bits.
inline float vexp(float x) {
    // Written so that a NaN fails both comparisons and stays.
    x = x > 89.f ? 89.f : x;
    x = x < -104.f ? -104.f : x;
    // Adding 1.5 * 2^23 leaves n, rounded, in the low bits of the sum.
    constexpr float kRound = 12582912.f;
    const float shifted = std::fma(x, 1.44269504f, kRound);
    const float n = shifted - kRound;
    float r = std::fma(n, -0.693147182f, x);
    r = std::fma(n, 1.90465432e-9f, r);
    float q = 1.38145986e-3f;
    q = std::fma(q, r, 8.36871688e-3f);
    q = std::fma(q, r, 4.16683880e-2f);
    q = std::fma(q, r, 1.66665206e-1f);
    q = std::fma(q, r, 4.99999934e-1f);
    const float y = std::fma(r * r, q, r) + 1.f;
    // 2^n in two factors: n reaches from -150 to 128 and a float's exponent only from -126 to 127.
    const int32_t k = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRound);
    const int32_t half = k >> 1;
    return y * std::bit_cast<float>((half + 127) << 23) *
           std::bit_cast<float>((k - half + 127) << 23);
}

// The pieces of GELU's tanh form, u = sqrt(2/pi) (x + 0.044715 x^3). With s = 1 / (1 + e^(-2u)):
//   0.5 (1 + tanh(u)) = s,   gelu(x) = x s,   gelu'(x) = s + x * 2 s (1 - s) * du/dx
// s(1-s) comes from e^(-|2u|), so that nothing cancels and nothing overflows. Beyond |x| = 16 s is
// 0 or 1 in every bit, so clamping x there changes nothing but keeps x^3 finite.
struct GeluParts {
    float s, s_one_minus_s, two_du;
};
inline GeluParts gelu_parts(float x) {
    float c = x > 16.f ? 16.f : x;
    c = c < -16.f ? -16.f : c;
    constexpr float kTwoRoot = 1.59576912f; // 2 sqrt(2/pi)
    const float square = c * c;
    const float two_u = kTwoRoot * c * std::fma(0.044715f, square, 1.f);
    const float e = vexp(-std::fabs(two_u)), d = 1.f / (1.f + e);
    return {two_u < 0.f ? e * d : d, e * d * d, kTwoRoot * std::fma(3 * 0.044715f, square, 1.f)};
}
inline float gelu(float x) {
    return x * gelu_parts(x).s;
}
inline float gelu_derivative(float x) {
    const GeluParts g = gelu_parts(x);
    return std::fma(x * g.s_one_minus_s, g.two_du, g.s);
}
