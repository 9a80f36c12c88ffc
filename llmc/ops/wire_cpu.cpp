#include <algorithm>

#include "llmc/core/phase.h"
#include "llmc/ops/wire_format.h"

void wire_most(int32_t* most, const float* x, size_t n, CpuStream) {
    const PhaseTimer timer(Phase::Optimizer);
    int32_t found = *most;
#pragma omp parallel for simd schedule(static) reduction(max : found)
    for (size_t i = 0; i < n; i++) found = std::max(found, int32_t(float_bits(x[i]) & 0x7fffffffu));
    *most = found;
}

// f<wire>(2^k)
template <class Each>
static void for_wire(Wire wire, const int32_t* most, int ranks, Each f) {
    const PhaseTimer timer(Phase::Optimizer);
    if (wire == Wire::Fp16)
        f.template operator()<Wire::Fp16>(wire_scale_exponent(*most, ranks));
    else
        f.template operator()<Wire::Bf16>(0);
}

void wire_pack(uint16_t* y, const float* x, size_t n, Wire wire, const int32_t* most, int ranks,
               CpuStream) {
    for_wire(wire, most, ranks, [&]<Wire kWire>(int k) {
        const float scale = wire_power(k);
#pragma omp parallel for simd schedule(static)
        for (size_t i = 0; i < n; i++) y[i] = wire_round<kWire>(x[i], scale);
    });
}

void wire_unpack(float* x, const uint16_t* y, size_t n, Wire wire, const int32_t* most, int ranks,
                 CpuStream) {
    for_wire(wire, most, ranks, [&]<Wire kWire>(int k) {
        const float unscale = wire_power(-k);
#pragma omp parallel for simd schedule(static)
        for (size_t i = 0; i < n; i++) x[i] = wire_value<kWire>(y[i], unscale);
    });
}

void wire_add(float* acc, const uint16_t* y, size_t n, Wire wire, const int32_t* most, int ranks,
              CpuStream) {
    for_wire(wire, most, ranks, [&]<Wire kWire>(int k) {
        const float unscale = wire_power(-k);
#pragma omp parallel for simd schedule(static)
        for (size_t i = 0; i < n; i++) acc[i] += wire_value<kWire>(y[i], unscale);
    });
}
