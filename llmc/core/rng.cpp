#include "llmc/core/rng.h"

#include <cmath>

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
