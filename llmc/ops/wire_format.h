// llmc/ops/wire_format.h: the 16-bit numbers of wire.h, bit by bit; the same code on CPU and GPU.
#pragma once
#include <cstdint>
#include <cstring>

#include "llmc/ops/wire.h"

#ifdef __CUDACC__
#define WIRE_FUNCTION __host__ __device__ __forceinline__
#else
#define WIRE_FUNCTION inline
#endif

WIRE_FUNCTION uint32_t wire_bits(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}
WIRE_FUNCTION float wire_float(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}
// 2^k for a normal result.
WIRE_FUNCTION float wire_power(int k) {
    return wire_float(uint32_t(k + 127) << 23);
}

// fp16 (IEEE 754 binary16): 5 exponent bits, 10 fraction bits.
WIRE_FUNCTION uint16_t wire_to_fp16(float x) {
    const uint32_t u = wire_bits(x) & 0x7fffffffu, sign = wire_bits(x) >> 16 & 0x8000u;
    // From 2^16 on: infinity, or NaN.
    const uint32_t beyond = u > 0x7f800000u ? 0x7e00u : 0x7c00u;
    // Below 2^-14 the grid is 2^-24, which is that of fp32 at 0.5: the addition rounds.
    const uint32_t small = wire_bits(wire_float(u) + 0.5f) - wire_bits(0.5f);
    // Between: another bias of the exponent, 13 bits less; half of the last bit kept, and a tie
    // goes to even. A carry into the exponent is right, up to infinity.
    const uint32_t normal = (u - (112u << 23) + 0xfffu + (u >> 13 & 1u)) >> 13;
    return uint16_t(sign | (u >= 0x47800000u ? beyond : u < 0x38800000u ? small : normal));
}
WIRE_FUNCTION float wire_from_fp16(uint16_t y) {
    const uint32_t sign = uint32_t(y & 0x8000u) << 16, m = y & 0x7fffu;
    const float small = float(m) * 0x1p-24f;  // exact; below 2^-14
    const float normal = wire_float((m << 13) + ((m >= 0x7c00u ? 224u : 112u) << 23));
    return wire_float(wire_bits(m < 0x400u ? small : normal) | sign);
}

// bf16 as core/dtype.h has it.
WIRE_FUNCTION uint16_t wire_to_bf16(float x) {
    const uint32_t u = wire_bits(x);
    const bool nan = (u & 0x7fffffffu) > 0x7f800000u;
    return uint16_t(nan ? u >> 16 | 0x40u : (u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

template <Wire kWire>
WIRE_FUNCTION uint16_t wire_round(float x, float scale) {
    return kWire == Wire::Fp16 ? wire_to_fp16(x * scale) : wire_to_bf16(x);
}
template <Wire kWire>
WIRE_FUNCTION float wire_value(uint16_t y, float unscale) {
    return kWire == Wire::Fp16 ? wire_from_fp16(y) * unscale : wire_float(uint32_t(y) << 16);
}

// The largest times the ranks is below 2^(exponent + 1 + log2 of the ranks, rounded up); |k| <=
// 126, so that 2^k and 2^-k are normal.
WIRE_FUNCTION int wire_scale_exponent(int32_t most, int ranks) {
    const int exponent = int(uint32_t(most) >> 23) - 127;
    if (most == 0 || exponent == 128) return 0;
    int log = 0;
    while ((1 << log) < ranks) log++;
    const int k = 15 - log - (exponent + 1);
    return k > 126 ? 126 : k < -126 ? -126 : k;
}
