#include "llmc/core/rng.h"

#include <cmath>

PhiloxBlock philox(uint64_t counter_low, uint64_t counter_high, uint64_t key) {
    uint32_t c[4] = {uint32_t(counter_low), uint32_t(counter_low >> 32), uint32_t(counter_high),
                     uint32_t(counter_high >> 32)};
    uint32_t k0 = uint32_t(key), k1 = uint32_t(key >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t a = uint64_t(0xD2511F53u) * c[0], b = uint64_t(0xCD9E8D57u) * c[2];
        const uint32_t n0 = uint32_t(b >> 32) ^ c[1] ^ k0, n2 = uint32_t(a >> 32) ^ c[3] ^ k1;
        c[1] = uint32_t(b);
        c[3] = uint32_t(a);
        c[0] = n0;
        c[2] = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return {{c[0], c[1], c[2], c[3]}};
}

uint64_t random_bits(uint64_t seed, uint64_t name, uint64_t index) {
    const PhiloxBlock r = philox(index, name, seed);
    return uint64_t(r.x[1]) << 32 | r.x[0];
}

float random_uniform(uint64_t seed, uint64_t name, uint64_t index) {
    return float(random_bits(seed, name, index) >> 40) * 0x1p-24f;
}

void random_normal(float* x, size_t n, uint64_t first, float mean, float std, uint64_t seed,
                   uint64_t name) {
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < n; i++) {
        // Box-Muller: u in (0, 1], so the logarithm is finite; in double, then rounded once.
        const PhiloxBlock r = philox(first + i, name, seed);
        const double u = (double(r.x[0]) + 1) * 0x1p-32,
                     angle = double(r.x[1]) * 0x1p-32 * 2 * M_PI;
        x[i] = float(mean + double(std) * std::sqrt(-2 * std::log(u)) * std::cos(angle));
    }
}
