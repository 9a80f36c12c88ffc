// llmc/ops/op_test.h: what the tests of the ops share: guarded buffers, random numbers,
// derivatives.
#pragma once
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "llmc/core/backend.h"
#include "llmc/core/check.h"
#include "llmc/core/rng.h"

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr double kEps = 0x1p-24;  // half a unit in the last place of 1.f: one rounding

// n floats between two strips of NaN. A read beyond the ends poisons a result, a write is found
// when the buffer dies. The odd strip keeps the data off every vector alignment.
class Buffer {
  public:
    explicit Buffer(size_t n, float value = 0.f) : n_(n), store_(n + 2 * kStrip, kNan) {
        std::fill_n(data(), n, value);
    }
    Buffer(const Buffer&) = default;
    Buffer& operator=(const Buffer&) = default;
    ~Buffer() {
        for (size_t i = 0; i < kStrip; i++) {
            EXPECT_TRUE(same_bits(store_[i], kNan)) << "written before the buffer, -" << kStrip - i;
            EXPECT_TRUE(same_bits(store_[kStrip + n_ + i], kNan)) << "written behind, +" << i;
        }
    }
    float* data() { return store_.data() + kStrip; }
    const float* data() const { return store_.data() + kStrip; }
    operator float*() { return data(); }
    operator const float*() const { return data(); }
    size_t size() const { return n_; }

    static bool same_bits(float a, float b) { return std::memcmp(&a, &b, sizeof a) == 0; }
    bool operator==(const Buffer& other) const {
        return n_ == other.n_ && std::memcmp(data(), other.data(), n_ * sizeof(float)) == 0;
    }

  private:
    static constexpr size_t kStrip = 67;
    size_t n_;
    std::vector<float> store_;
};

// Standard normal values that depend on the name alone.
inline Buffer random_buffer(size_t n, const char* name, float std = 1.f, float mean = 0.f) {
    Buffer x(n);
    random_normal(x, n, 0, mean, std, 1, name_hash(name));
    return x;
}

// sum_i a[i] * b[i] in double: with b as the gradient that arrives, dL/da = b.
inline double inner(const Buffer& a, const Buffer& b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); i++) sum += double(a[i]) * b[i];
    return sum;
}

// dx is the derivative of loss() by each x[i], by the five-point rule with h = 2^-5. Its own error
// is h^4 / 30 (3e-8) times the fifth derivative, plus the noise of a float loss: 1.5 / h = 48 times
// the rounding error of the outputs, kEps * sum |y dy|. For losses of order 10 that is 3e-5.
inline void expect_derivative(const char* what, Buffer& x, const Buffer& dx,
                              const std::function<double()>& loss, double tolerance = 2e-4) {
    constexpr float h = 0x1p-5f;
    for (size_t i = 0; i < x.size(); i++) {
        const float x0 = x[i];
        const auto at = [&](float step) {
            x[i] = x0 + step;
            return loss();
        };
        const double slope = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * double(h));
        x[i] = x0;
        EXPECT_NEAR(dx[i], slope, tolerance) << what << "[" << i << "]";
    }
}

// Inputs for derivatives: multiples of 2^-12, so that x + h is exact.
inline Buffer grid_buffer(size_t n, const char* name) {
    Buffer x = random_buffer(n, name);
    for (size_t i = 0; i < n; i++) x[i] = std::round(x[i] * 0x1p12f) * 0x1p-12f;
    return x;
}

// result() has the same bits on 1, 2, 3 and 7 threads.
inline void expect_same_bits_on_any_threads(const std::function<Buffer()>& result) {
    const int before = omp_get_max_threads();
    omp_set_num_threads(1);
    const Buffer one = result();
    for (int threads : {2, 3, 7}) {
        omp_set_num_threads(threads);
        EXPECT_TRUE(result() == one) << threads << " threads";
    }
    omp_set_num_threads(before);
}

// Scratch of exactly the size an op asks for, filled with NaN: an op must not trust what is in it.
class Scratch {
  public:
    explicit Scratch(size_t bytes) : memory_(bytes / sizeof(float), kNan), bytes_(bytes) {
        EXPECT_EQ(bytes % sizeof(float), 0u);
    }
    operator Workspace() { return {memory_.data(), bytes_}; }

  private:
    Buffer memory_;
    size_t bytes_;
};
