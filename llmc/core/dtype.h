// llmc/core/dtype.h: element types of tensors, in memory and in files.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>

// bf16: the upper half of a float (8 exponent bits, 7 fraction bits). Conversion rounds to nearest,
// ties to even; a NaN stays a NaN. On a GPU the same 16 bits are read as __nv_bfloat16.
struct bf16 {
    uint16_t bits;
};

inline float to_float(float x) {
    return x;
}
inline float to_float(bf16 x) {
    return std::bit_cast<float>(uint32_t(x.bits) << 16);
}

inline bf16 to_bf16(float x) {
    const uint32_t u = std::bit_cast<uint32_t>(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return {uint16_t(u >> 16 | 0x40)};
    return {uint16_t((u + 0x7fffu + (u >> 16 & 1)) >> 16)};
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
