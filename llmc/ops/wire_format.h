// llmc/ops/wire_format.h: the 16-bit numbers of wire.h, bit by bit; the same code on CPU and GPU.
#pragma once
#include <cstdint>

#include "llmc/core/dtype.h"
#include "llmc/ops/wire.h"

// 2^k for a normal result.
HOST_DEVICE float wire_power(int k) {
    return float_from_bits(uint32_t(k + 127) << 23);
}

template <Wire kWire>
HOST_DEVICE uint16_t wire_round(float x, float scale) {
    return kWire == Wire::Fp16 ? to_fp16(x * scale) : to_bf16(x).bits;
}
template <Wire kWire>
HOST_DEVICE float wire_value(uint16_t y, float unscale) {
    return kWire == Wire::Fp16 ? from_fp16(y) * unscale : to_float(bf16{y});
}

// k of the scale 2^k for fp16. The largest times the ranks is below 2^(exponent + 1 + log2 of the
// ranks, rounded up); |k| <= 126, so that 2^k and 2^-k are normal.
HOST_DEVICE int wire_scale_exponent(int32_t most, int ranks) {
    const int exponent = int(uint32_t(most) >> 23) - 127;
    if (most == 0 || exponent == 128) return 0;
    int log = 0;
    while ((1 << log) < ranks) log++;
    const int k = 15 - log - (exponent + 1);
    return k > 126 ? 126 : k < -126 ? -126 : k;
}
