// dev/parallel/toy.h: what the toys share: a two-layer perceptron that learns a curve, and Adam.
//
// Gradients are summed as integers (2^-40 a unit), whose sums do not depend on order, so all toys
// print the same numbers for any number of ranks (dev/doc/canonical.md).
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

constexpr int kIn = 3, kHidden = 7, kSteps = 200, kBatch = 24;
constexpr int kLayer1 = kHidden * kIn + kHidden;  // weights and biases
constexpr int kLayer2 = kHidden + 1;
constexpr int kParams = kLayer1 + kLayer2;

inline int64_t fixed(double x) {
    return std::llrint(x * 0x1p40);
}

// Numbers in -1 .. 1 that depend on i alone.
inline float noise(int i) {
    uint32_t x = uint32_t(i) * 0x9e3779b9u;
    x = (x ^ x >> 15) * 0x85ebca6bu;
    return float(int32_t(x ^ x >> 13)) * 0x1p-31f;
}

// Forward and backward of one sample: y = w2 tanh(w1 x + b1) + b2, loss (y - t)^2 / kBatch.
// Adds to the gradients of both layers; returns the loss in fixed point.
inline int64_t sample(const float* layer1, const float* layer2, int index, int64_t* d1,
                      int64_t* d2) {
    float x[kIn], h[kHidden], y = layer2[kHidden];
    for (int i = 0; i < kIn; i++) x[i] = noise(index * kIn + i);
    for (int j = 0; j < kHidden; j++) {
        float sum = layer1[kHidden * kIn + j];
        for (int i = 0; i < kIn; i++) sum += layer1[j * kIn + i] * x[i];
        h[j] = std::tanh(sum);
        y += layer2[j] * h[j];
    }
    const float error = y - std::sin(2 * x[0] + x[1] * x[2]), dy = 2 * error / kBatch;
    d2[kHidden] += fixed(dy);
    for (int j = 0; j < kHidden; j++) {
        d2[j] += fixed(dy * h[j]);
        const float dh = dy * layer2[j] * (1 - h[j] * h[j]);
        d1[kHidden * kIn + j] += fixed(dh);
        for (int i = 0; i < kIn; i++) d1[j * kIn + i] += fixed(dh * x[i]);
    }
    return fixed(error * error / kBatch);
}

// One step of Adam on n parameters; the gradients are zero afterwards.
inline void adam(float* p, float* m, float* v, int64_t* d, int n, int step) {
    for (int i = 0; i < n; i++) {
        const float g = float(d[i]) * 0x1p-40f;
        d[i] = 0;
        m[i] = 0.9f * m[i] + 0.1f * g;
        v[i] = 0.99f * v[i] + 0.01f * g * g;
        const float mean = m[i] / (1 - std::pow(0.9f, float(step)));
        p[i] -= 0.02f * mean / (std::sqrt(v[i] / (1 - std::pow(0.99f, float(step)))) + 1e-8f);
    }
}

inline void report(int step, int64_t loss) {
    if (step % 20 == 0) std::printf("step %d loss %.9g\n", step, double(loss) * 0x1p-40);
}
