// llmc/ops/vector_math.h: exp and GELU on vectors of floats.
//
// Straight lines of correctly rounded operations: a value has the same bits in whichever lane, loop
// or tail it is computed.
// Proof: vector_math_test.cpp.
#pragma once
#include "llmc/core/simd.h"

// e^x within 1 ulp; overflows to infinity, passes NaN on, and is 0 where e^x < 2.5e-38: subnormal
// numbers would serve nobody here and cost a hundred cycles each.
//   x = n ln2 + r with |r| <= ln2 / 2, so e^x = 2^n (1 + r + r^2 q(r))
// q is the polynomial of degree 4 with the least largest relative error, 3.1e-9 or 0.05 ulp
// (Remez exchange in 40 digits). ln2 is split in two so that x - n ln2 keeps its low bits.
inline Vec vec_exp(Vec x) {
    const Vec c = vec_min(vec_all(89.f), x);  // a NaN stays
    // Adding 1.5 * 2^23 leaves n, rounded, in the low bits of the sum.
    const Vec round = vec_all(12582912.f);
    const Vec shifted = vec_fma(c, vec_all(1.44269504f), round);
    const Vec n = shifted - round;
    Vec r = vec_fma(n, vec_all(-0.693147182f), c);
    r = vec_fma(n, vec_all(1.90465432e-9f), r);
    Vec q = vec_all(1.38145986e-3f);
    q = vec_fma(q, r, vec_all(8.36871688e-3f));
    q = vec_fma(q, r, vec_all(4.16683880e-2f));
    q = vec_fma(q, r, vec_all(1.66665206e-1f));
    q = vec_fma(q, r, vec_all(4.99999934e-1f));
    const Vec y = vec_fma(r * r, q, r) + 1.f;
    // 2^(n-1), then 2: n reaches from -125 to 128 and a float's exponent only to 127.
    const VecInt exponent = (VecInt)shifted - (VecInt)round + 126;
    return x < -86.6f ? Vec{} : y * (Vec)(exponent << 23) * 2.f;
}
inline float vec_exp(float x) {
    return vec_exp(vec_all(x))[0];
}

// The pieces of GELU's tanh form, u = sqrt(2/pi) (x + 0.044715 x^3). With s = 1 / (1 + e^(-2u)):
//   0.5 (1 + tanh(u)) = s,   gelu(x) = x s,   gelu'(x) = s + x * 2 s (1 - s) * du/dx
// s(1-s) comes from e^(-|2u|), so that nothing cancels and nothing overflows. Beyond |x| = 16 s is
// 0 or 1 in every bit, so clamping x there changes nothing but keeps x^3 finite.
struct GeluParts {
    Vec s, s_one_minus_s, two_du;
};
inline GeluParts gelu_parts(Vec x) {
    const Vec c = vec_max(vec_all(-16.f), vec_min(vec_all(16.f), x)), square = c * c;
    const Vec two_root = vec_all(1.59576912f);  // 2 sqrt(2/pi)
    const Vec two_u = two_root * c * vec_fma(vec_all(0.044715f), square, vec_all(1.f));
    const Vec minus_abs = (Vec)((VecInt)two_u | INT32_MIN);
    const Vec e = vec_exp(minus_abs), d = 1.f / (1.f + e);
    return {two_u < 0.f ? e * d : d, e * d * d,
            two_root * vec_fma(vec_all(3 * 0.044715f), square, vec_all(1.f))};
}
inline Vec vec_gelu(Vec x) {
    return x * gelu_parts(x).s;
}
inline Vec vec_gelu_derivative(Vec x) {
    const GeluParts g = gelu_parts(x);
    return vec_fma(x * g.s_one_minus_s, g.two_du, g.s);
}
