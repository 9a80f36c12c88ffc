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

struct PhiloxBlock {
    uint32_t x[4];
};

// Ten rounds on the 128-bit counter with the 64-bit key. Known-answer tests: rng_test.cpp.
PhiloxBlock philox(uint64_t counter_low, uint64_t counter_high, uint64_t key);

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
