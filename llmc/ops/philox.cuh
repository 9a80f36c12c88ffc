// llmc/ops/philox.cuh: the counter-based generator of llmc/core/rng.h on the device, same bits.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

__device__ __forceinline__ uint4 philox_device(uint64_t counter_low, uint64_t counter_high,
                                               uint64_t key) {
    uint4 c = make_uint4(uint32_t(counter_low), uint32_t(counter_low >> 32), uint32_t(counter_high),
                         uint32_t(counter_high >> 32));
    uint32_t k0 = uint32_t(key), k1 = uint32_t(key >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const uint64_t a = uint64_t(0xD2511F53u) * c.x, b = uint64_t(0xCD9E8D57u) * c.z;
        c = make_uint4(uint32_t(b >> 32) ^ c.y ^ k0, uint32_t(b), uint32_t(a >> 32) ^ c.w ^ k1,
                       uint32_t(a));
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c;
}
