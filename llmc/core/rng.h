// llmc/core/rng.h: everything random is a function of (seed, name, global index).
//
// Philox4x32-10, a counter-based generator: the counter is the index, the key comes from the seed
// and the name, and nothing is kept between calls. So a shard's values are the slice of the whole
// tensor's, and there is no generator state to save.
// Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", SC11, section 4.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "llmc/core/host_device.h"

struct PhiloxBlock {
    uint32_t x[4];
};

// Ten rounds on the 128-bit counter with the 64-bit key, on CPU and GPU. Known-answer tests:
// rng_test.cpp.
HOST_DEVICE PhiloxBlock philox(uint64_t counter_low, uint64_t counter_high, uint64_t key) {
    PhiloxBlock c{{uint32_t(counter_low), uint32_t(counter_low >> 32), uint32_t(counter_high),
                   uint32_t(counter_high >> 32)}};
    uint32_t k0 = uint32_t(key), k1 = uint32_t(key >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t a = uint64_t(0xD2511F53u) * c.x[0], b = uint64_t(0xCD9E8D57u) * c.x[2];
        c.x[0] = uint32_t(b >> 32) ^ (c.x[1] ^ k0);
        c.x[1] = uint32_t(b);
        c.x[2] = uint32_t(a >> 32) ^ (c.x[3] ^ k1);
        c.x[3] = uint32_t(a);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c;
}

// FNV-1a, 64 bits: names become stream numbers. Also usable at compile time.
constexpr uint64_t name_hash(std::string_view name) {
    uint64_t h = 0xcbf29ce484222325u;
    for (char c : name) h = (h ^ uint8_t(c)) * 0x100000001b3u;
    return h;
}

// 64 random bits for (seed, name, index).
uint64_t random_bits(uint64_t seed, uint64_t name, uint64_t index);

// Uniform in [0, 1) with 24 bits.
float random_uniform(uint64_t seed, uint64_t name, uint64_t index);

// x[i] = mean + std * z(seed, name, first + i), z standard normal (Box-Muller on Philox words).
void random_normal(float* x,  // (n)  =
                   size_t n, uint64_t first, float mean, float std, uint64_t seed, uint64_t name);
