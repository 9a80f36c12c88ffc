// llmc/core/dtype.h: element types of tensors, in memory and in files; the 16-bit ones bit by bit,
// by the same code on CPU and GPU.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "llmc/core/host_device.h"

HOST_DEVICE uint32_t float_bits(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}
HOST_DEVICE float float_from_bits(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

// bf16: the upper half of a float (8 exponent bits, 7 fraction bits). Conversion rounds to nearest,
// ties to even; a NaN stays a NaN. On a GPU the same 16 bits are read as __nv_bfloat16.
struct bf16 {
    uint16_t bits;
};

HOST_DEVICE float to_float(float x) {
    return x;
}
HOST_DEVICE float to_float(bf16 x) {
    return float_from_bits(uint32_t(x.bits) << 16);
}

HOST_DEVICE bf16 to_bf16(float x) {
    const uint32_t u = float_bits(x);
    const bool nan = (u & 0x7fffffffu) > 0x7f800000u;
    return {uint16_t(nan ? u >> 16 | 0x40u : (u + 0x7fffu + (u >> 16 & 1u)) >> 16)};
}

// fp16 (IEEE 754 binary16): 5 exponent bits, 10 fraction bits. To nearest, ties to even.
HOST_DEVICE uint16_t to_fp16(float x) {
    const uint32_t u = float_bits(x) & 0x7fffffffu, sign = float_bits(x) >> 16 & 0x8000u;
    // From 2^16 on: infinity, or NaN.
    const uint32_t beyond = u > 0x7f800000u ? 0x7e00u : 0x7c00u;
    // Below 2^-14 the grid is 2^-24, which is that of fp32 at 0.5: the addition rounds.
    const uint32_t small = float_bits(float_from_bits(u) + 0.5f) - float_bits(0.5f);
    // Between: another bias of the exponent, 13 bits less; half of the last bit kept, and a tie
    // goes to even. A carry into the exponent is right, up to infinity.
    const uint32_t normal = (u - (112u << 23) + 0xfffu + (u >> 13 & 1u)) >> 13;
    return uint16_t(sign | (u >= 0x47800000u ? beyond : u < 0x38800000u ? small : normal));
}
HOST_DEVICE float from_fp16(uint16_t y) {
    const uint32_t sign = uint32_t(y & 0x8000u) << 16, m = y & 0x7fffu;
    const float small = float(m) * 0x1p-24f;  // exact; below 2^-14
    const float normal = float_from_bits((m << 13) + ((m >= 0x7c00u ? 224u : 112u) << 23));
    return float_from_bits(float_bits(m < 0x400u ? small : normal) | sign);
}

enum class Dtype { F32, BF16, F16, U16, I32, U32, I64, F64 };

inline size_t dtype_bytes(Dtype t) {
    switch (t) {
        case Dtype::BF16:
        case Dtype::F16:
        case Dtype::U16:
            return 2;
        case Dtype::I64:
        case Dtype::F64:
            return 8;
        default:
            return 4;
    }
}
inline const char* dtype_name(Dtype t) {
    constexpr const char* names[] = {"fp32",  "bf16",   "fp16",  "uint16",
                                     "int32", "uint32", "int64", "fp64"};
    return names[int(t)];
}
template <class Elem>
constexpr Dtype dtype_of();
template <>
constexpr Dtype dtype_of<float>() {
    return Dtype::F32;
}
template <>
constexpr Dtype dtype_of<bf16>() {
    return Dtype::BF16;
}
