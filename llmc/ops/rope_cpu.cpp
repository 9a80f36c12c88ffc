// Rotary position embedding on the CPU.
#include "llmc/ops/rope.h"

#include <cstdint>

#include "llmc/core/phase.h"

double rope_frequency(int i, int HS, double theta, const RopeScaling& scaling) {
    const double f = std::pow(theta, -2.0 * i / HS);
    if (scaling.factor == 1) return f;
    const double wavelength = 2 * std::numbers::pi / f;
    const double smooth = (scaling.old_context / wavelength - scaling.low_freq_factor) /
                          (scaling.high_freq_factor - scaling.low_freq_factor);
    const double keep = smooth < 0 ? 0 : smooth > 1 ? 1 : smooth;
    return f * keep + f / scaling.factor * (1 - keep);
}

void rope_table(float* table, int first, int T, int HS, double theta, const RopeScaling& scaling) {
    const int pairs = HS / 2;
    for (int t = 0; t < T; t++) {
        for (int i = 0; i < pairs; i++) {
            const double angle = double(first + t) * rope_frequency(i, HS, theta, scaling);
            table[int64_t(t) * HS + i] = float(std::cos(angle));
            table[int64_t(t) * HS + pairs + i] = float(std::sin(angle));
        }
    }
}

// One head: element i of each pair at x[i * stride], its partner `apart` further.
static void turn(float* x, const float* cos, const float* sin, int pairs, int stride, int apart,
                 float direction) {
    for (int i = 0; i < pairs; i++) {
        float &a = x[i * stride], &b = x[i * stride + apart];
        const float s = direction * sin[i], turned = a * cos[i] - b * s;
        b = a * s + b * cos[i];
        a = turned;
    }
}

void rope(float* qkv, const float* table, int B, int T, int H, int KV, int HS, RopePairs pairs,
          int direction, CpuStream) {
    const PhaseTimer timer(Phase::Attention);
    const int half = HS / 2, row = (H + 2 * KV) * HS;
    const int stride = pairs == RopePairs::Half ? 1 : 2,
              apart = pairs == RopePairs::Half ? half : 1;
#pragma omp parallel for schedule(static) collapse(2)
    for (int b = 0; b < B; b++) {
        for (int t = 0; t < T; t++) {
            float* const x = qkv + (int64_t(b) * T + t) * row;
            const float* const cos = table + int64_t(t) * HS;
            for (int h = 0; h < H + KV; h++)
                turn(x + h * HS, cos, cos + half, half, stride, apart, float(direction));
        }
    }
}
