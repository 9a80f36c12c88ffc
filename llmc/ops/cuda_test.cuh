// llmc/ops/cuda_test.cuh: what the tests of the CUDA ops share. Each op is compared with its CPU
// definition on the same inputs, rounded to the element type first.
#pragma once
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "llmc/core/backend.h"
#include "llmc/core/check.h"
#include "llmc/core/dtype.h"
#include "llmc/core/rng.h"

constexpr CudaStream kCuda{};
constexpr CpuStream kCpu{};

using Floats = std::vector<float>;
template <class Elem>
using Elems = std::vector<Elem>;

template <class Elem>
Elem to_elem(float x) {
    if constexpr (std::is_same_v<Elem, bf16>)
        return to_bf16(x);
    else
        return x;
}
template <class Elem>
Elems<Elem> narrow(const Floats& x) {
    Elems<Elem> y(x.size());
    for (size_t i = 0; i < x.size(); i++) y[i] = to_elem<Elem>(x[i]);
    return y;
}
template <class Elem>
Floats widen(const Elems<Elem>& x) {
    Floats y(x.size());
    for (size_t i = 0; i < x.size(); i++) y[i] = to_float(x[i]);
    return y;
}

// Standard normal values that depend on the name alone, rounded to Elem.
template <class Elem>
Elems<Elem> random_elems(size_t n, const char* name, float std = 1.f) {
    Floats x(n);
    random_normal(x.data(), n, 0, 0.f, std, 1, name_hash(name));
    return narrow<Elem>(x);
}
inline std::vector<int> random_ints(size_t n, const char* name, int below) {
    std::vector<int> x(n);
    for (size_t i = 0; i < n; i++) x[i] = int(random_bits(1, name_hash(name), i) % uint64_t(below));
    return x;
}

// An array on the device between two strips of a pattern: who writes outside is found when it is
// read back. `shift` elements move it off its alignment. In the simulator nothing follows it: there
// a read behind an allocation is an error too.
template <class T>
class Device {
  public:
    explicit Device(const std::vector<T>& host, size_t shift = 0)
        : n_(host.size()),
          shift_(shift),
          base_(static_cast<T*>(memory_alloc(bytes(), "test", kCuda))) {
        std::vector<T> all(kStrip + shift_ + n_ + kAfter);
        std::memset(static_cast<void*>(all.data()), kPattern, bytes());
        std::copy(host.begin(), host.end(), all.begin() + kStrip + shift_);
        memory_from_host(base_, all.data(), bytes(), kCuda);
    }
    // Full of the pattern: an output that is not written stays NaN.
    explicit Device(size_t n, size_t shift = 0) : Device(std::vector<T>(n, pattern()), shift) {}
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;
    ~Device() { memory_free(base_, bytes(), kCuda); }

    operator T*() { return base_ + kStrip + shift_; }
    operator const T*() const { return base_ + kStrip + shift_; }

    std::vector<T> host() const {
        std::vector<T> all(kStrip + shift_ + n_ + kAfter);
        memory_to_host(all.data(), base_, bytes(), kCuda);
        const T guard = pattern();
        for (size_t i = 0; i < all.size(); i++) {
            if (i >= kStrip + shift_ && i < kStrip + shift_ + n_) continue;
            EXPECT_EQ(std::memcmp(&all[i], &guard, sizeof(T)), 0)
                << "written at " << int64_t(i) - int64_t(kStrip + shift_) << " of " << n_;
        }
        return {all.begin() + kStrip + shift_, all.begin() + kStrip + shift_ + n_};
    }

  private:
    static constexpr size_t kStrip = 64;
#ifdef CUSIM
    static constexpr size_t kAfter = 0;
#else
    static constexpr size_t kAfter = kStrip;
#endif
    static constexpr int kPattern = 0xff;  // NaN as float and as bf16
    static T pattern() {
        T x;
        std::memset(static_cast<void*>(&x), kPattern, sizeof x);
        return x;
    }
    size_t bytes() const {
        return (kStrip + shift_ + n_ + kAfter) * sizeof(T);
    }
    size_t n_, shift_;
    T* base_;
};

// Scratch of exactly the size an op asks for, guarded, full of NaN.
class Scratch {
  public:
    explicit Scratch(size_t bytes) : bytes_(bytes), memory_(bytes) {}
    ~Scratch() { memory_.host(); }
    operator Workspace() { return {static_cast<char*>(memory_), bytes_}; }

  private:
    size_t bytes_;
    Device<char> memory_;
};

// One rounding to Elem, relative.
template <class Elem>
constexpr double kRounding = std::is_same_v<Elem, bf16> ? 0x1p-8 : 0x1p-24;
constexpr double kEps = 0x1p-24;

// Keeps the largest value of this name as a property of the running test (--gtest_output=xml:F).
inline void record_largest(const std::string& name, double value) {
    static std::map<std::string, double> largest;
    const testing::TestInfo* test = testing::UnitTest::GetInstance()->current_test_info();
    double& most = largest[str(test->test_suite_name(), ".", test->name(), " ", name)];
    most = std::max(most, value);
    testing::Test::RecordProperty(name, str(most));
}

// |found - expected| <= tolerance(i) everywhere; a NaN fails. The largest error and its share of
// the tolerance are recorded.
template <class Elem>
void expect_close(const char* what, const Elems<Elem>& found, const Floats& expected,
                  const std::function<double(size_t)>& tolerance) {
    ASSERT_EQ(found.size(), expected.size()) << what;
    double worst = 0, error = 0;
    int failures = 0;
    for (size_t i = 0; i < found.size(); i++) {
        const double e = std::fabs(double(to_float(found[i])) - expected[i]), t = tolerance(i);
        if (!(e <= t) && ++failures <= 3)
            ADD_FAILURE() << what << "[" << i << "] is " << to_float(found[i]) << ", expected "
                          << expected[i] << " within " << t;
        worst = std::max(worst, t > 0 ? e / t : 0);
        error = std::max(error, e);
    }
    EXPECT_EQ(failures, 0) << what << ": elements out of " << found.size();
    record_largest(std::string(what) + " share of tolerance", worst);
    record_largest(std::string(what) + " error", error);
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

using ElemTypes = testing::Types<float, bf16>;
