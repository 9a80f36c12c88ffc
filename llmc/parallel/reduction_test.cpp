// Fast reduction, in fp32 and in 16 bits: every element of the gradient and its norm are within
// bounds that follow from the additions made, at magnitudes from 2e-6 to 1e5; all ranks find the
// same; 16 bits send half the bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "llmc/core/check.h"
#include "llmc/core/hash.h"
#include "llmc/core/rng.h"
#include "llmc/parallel/comm_testing.h"
#include "llmc/parallel/shards.h"
#include "llmc/parallel/shards_testing.h"

namespace {

constexpr int kMicroBatches = 12;
constexpr double u32 = 0x1p-24;  // one rounding of fp32, relative

struct Case {
    int ranks, zero;
    Wire wire = Wire::Fp32;
    float size = 1;
    double bucket = 1024;
    bool overlap = true;
    std::string text() const {
        return str("ranks ", ranks, ", zero ", zero, ", wire ", int(wire), ", size ", size,
                   ", bucket ", bucket, ", overlap ", overlap);
    }
};

// Element i of tensor t in micro-batch m.
void gradient(float* x, const ParamTensor& t, int m, float size) {
    random_normal(x, size_t(t.count()), 0, 0, size, uint64_t(m), name_hash(t.name));
}

// Every rank holds the same numbers.
void expect_same_on_all(const std::vector<TensorSlice>& held, Comm& comm) {
    TensorHash hash;
    for (const TensorSlice& s : held)
        hash.add(tensor_hash(s.data, size_t(s.count), name_hash(s.tensor->name)));
    int64_t least = int64_t(hash.a), most = least;
    comm.all_reduce(&least, 1, ReduceOp::Min);
    comm.all_reduce(&most, 1, ReduceOp::Max);
    EXPECT_EQ(least, most) << "ranks hold different gradients";
}

// What a rank has after one step whose first moment is the gradient itself (beta1 = 0, unclipped).
struct Result {
    float norm;
    int64_t sent;
    TensorHash hash;  // of the gradient, over all ranks
};
template <class Check>
Result one_step(const Case& c, Comm& comm, Check check) {
    const ParamLayout layout = odd_layout();
    ShardsConfig config;
    config.zero = c.zero, config.reduction = Reduction::Fast, config.wire = c.wire;
    config.micro_batches = kMicroBatches, config.bucket_bytes = c.bucket;
    config.overlap = c.overlap;
    Memory<CpuStream> memory{CpuStream{}};
    Shards<float, CpuStream> shards(layout, config, comm, memory);
    auto* loss = memory.get<FixedSum>("test", "loss", 1);
    const int64_t before = comm.bytes_sent();
    const int each = kMicroBatches / c.ranks;
    std::vector<float> x;
    for (int m = comm.rank() * each; m < (comm.rank() + 1) * each; m++)
        for (int b = layout.head(); b >= 0; b--) {
            float* g = shards.grads_acquire(b);
            for (const ParamTensor& t : layout.blocks[size_t(b)].tensors) {
                x.resize(size_t(t.count()));
                gradient(x.data(), t, m, c.size);
                for (size_t i = 0; i < x.size(); i++) g[size_t(t.offset) + i] += x[i];
            }
            shards.grads_release(b);
        }
    shards.reduce();
    Result result{0, comm.bytes_sent() - before, {}};
    shards.clip(0, loss);
    shards.step({1e-3f, 0.f, 0.95f, 1e-8f, 0.f, 1});
    result.norm = shards.norm();
    if (c.zero == 0) expect_same_on_all(shards.moment_m_slices(Pieces::Held), comm);
    for (const TensorSlice& s : shards.moment_m_slices(Pieces::Owned)) {
        check(s);
        result.hash.add(
            tensor_hash(s.data, size_t(s.count), uint64_t(s.first) + name_hash(s.tensor->name)));
    }
    int64_t sums[2] = {int64_t(result.hash.a), int64_t(result.hash.b)};
    comm.all_reduce(sums, 2);
    result.hash.a = uint64_t(sums[0]), result.hash.b = uint64_t(sums[1]);
    return result;
}

// n roundings on top of each other: Higham 2002, Accuracy and Stability, lemma 3.1.
double gamma(int n) {
    return n * u32 / (1 - n * u32);
}

// How far an element may be from the exact sum of its M addends, whose magnitudes add up to A.
// fp32: M - 1 additions in some order err by at most gamma(M-1) A (Higham 2002, equation 4.6).
// 16 bits: what is sent was added up before with at most gamma(M) A, is rounded by at most u times
// itself plus t (wire.h), for each of at most M parts, and added in fp32; a total of stages 0 and 1
// is rounded once more. With most <= `largest`, the largest A of all, t <= 2^-38 N largest.
double element_bound(const Case& c, double A, double largest) {
    if (c.wire == Wire::Fp32 || c.ranks == 1) return gamma(kMicroBatches - 1) * A;
    const double u = c.wire == Wire::Bf16 ? 0x1p-8 : 0x1p-11;
    const double t = c.wire == Wire::Bf16 ? 0 : 0x1p-38 * c.ranks * largest;
    const double parts = (1 + u) * (1 + gamma(kMicroBatches)) * A + kMicroBatches * t;
    const double sum = (parts - A) + gamma(kMicroBatches) * parts;
    return c.zero >= 2 ? sum : sum + u * (A + sum) + t;
}

struct Exact {
    std::vector<double> sum, magnitude;
};
Exact exact(const ParamTensor& t, float size) {
    const size_t n = size_t(t.count());
    Exact e{std::vector<double>(n), std::vector<double>(n)};
    std::vector<float> x(n);
    for (int m = 0; m < kMicroBatches; m++) {
        gradient(x.data(), t, m, size);
        for (size_t i = 0; i < n; i++) e.sum[i] += x[i], e.magnitude[i] += std::fabs(double(x[i]));
    }
    return e;
}

// The norm of a vector that errs by e errs by at most |e|; its own computation rounds to fp32 once,
// and in double before.
void expect_within_bounds(const Case& c) {
    double largest = 0, squares = 0, errors = 0;
    for (const ParamBlock& b : odd_layout().blocks)
        for (const ParamTensor& t : b.tensors)
            for (double A : exact(t, c.size).magnitude) largest = std::max(largest, A);
    for (const ParamBlock& b : odd_layout().blocks)
        for (const ParamTensor& t : b.tensors) {
            const Exact e = exact(t, c.size);
            for (size_t i = 0; i < e.sum.size(); i++) {
                squares += e.sum[i] * e.sum[i];
                errors += std::pow(element_bound(c, e.magnitude[i], largest), 2);
            }
        }
    const double norm = std::sqrt(squares), margin = std::sqrt(errors) + 2 * u32 * norm;
    EXPECT_TRUE(on_ranks(c.ranks, [&](Comm& comm) {
        const Result r = one_step(c, comm, [&](const TensorSlice& s) {
            const Exact e = exact(*s.tensor, c.size);
            for (int64_t i = 0; i < s.count; i++) {
                const size_t at = size_t(s.first + i);
                ASSERT_NEAR(s.data[i], e.sum[at], element_bound(c, e.magnitude[at], largest))
                    << c.text() << ", " << s.tensor->name << " " << at;
            }
        });
        EXPECT_NEAR(r.norm, norm, margin) << c.text();
        int32_t least, most;
        std::memcpy(&least, &r.norm, sizeof least);
        most = least;
        comm.all_reduce(&least, 1, ReduceOp::Min);
        comm.all_reduce(&most, 1, ReduceOp::Max);
        EXPECT_EQ(least, most) << "ranks disagree about the norm, " << c.text();
    })) << c.text();
}

Result result_of(const Case& c) {
    void* memory =
        ::mmap(nullptr, sizeof(Result), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_TRUE(on_ranks(c.ranks, [&](Comm& comm) {
        const Result r = one_step(c, comm, [](const TensorSlice&) {});
        if (comm.rank() == 0) std::memcpy(memory, &r, sizeof r);
    })) << c.text();
    Result r;
    std::memcpy(static_cast<void*>(&r), memory, sizeof r);
    ::munmap(memory, sizeof(Result));
    return r;
}

}  // namespace

TEST(fast_reduction, is_within_its_bound) {
    for (int ranks : {1, 2, 3, 4})
        for (int zero : {0, 1, 2, 3}) expect_within_bounds({ranks, zero});
}

TEST(fast_reduction, in_16_bits_is_within_its_bound_at_any_magnitude) {
    for (Wire wire : {Wire::Bf16, Wire::Fp16})
        for (int ranks : {1, 2, 3, 4})
            for (int zero : {0, 1, 2, 3})
                for (float size : {1e5f, 2e-6f}) expect_within_bounds({ranks, zero, wire, size});
}

// Stages 0 and 1 round the same numbers, and so do 2 and 3; no bucket or overlap changes them. (In
// fp16 a bucket decides its scale, which only numbers near the end of its range notice.)
TEST(fast_reduction, bits_of_16_bit_sums_depend_on_ranks_and_not_on_buckets) {
    for (Wire wire : {Wire::Bf16, Wire::Fp16})
        for (int zero : {0, 2}) {
            const Case c{3, zero, wire};
            const Result one = result_of(c);
            for (Case other : {Case{3, zero + 1, wire}, Case{3, zero, wire, 1, 1024, false},
                               Case{3, zero, wire, 1, wire == Wire::Bf16 ? 7e3 : 1024}}) {
                const Result r = result_of(other);
                EXPECT_EQ(r.norm, one.norm) << other.text();
                EXPECT_EQ(r.hash, one.hash) << other.text();
            }
        }
}

// Slices are cut at multiples of 64 elements, so buckets of 16 KiB, which hold a block each, are
// cut alike in 16 and in 32 bits.
TEST(fast_reduction, sixteen_bits_are_half_the_bytes) {
    for (int ranks : {2, 4})
        for (int zero : {2, 3}) {
            const int64_t full = result_of({ranks, zero, Wire::Fp32, 1, 16384.}).sent;
            EXPECT_EQ(2 * result_of({ranks, zero, Wire::Bf16, 1, 16384.}).sent, full);
        }
    // In stages 0 and 1 an all-to-all, and in 0 a gather, of rank 0's full slices.
    for (int ranks : {2, 4})
        for (int zero : {0, 1})
            for (Wire wire : {Wire::Bf16, Wire::Fp16}) {
                ShardsConfig config;
                config.zero = zero, config.reduction = Reduction::Fast, config.wire = wire;
                config.micro_batches = kMicroBatches, config.bucket_bytes = 1024;
                int64_t expected = 0;
                for (const Bucket& b : shards_slicing(odd_layout(), config, ranks).buckets) {
                    const int64_t own = int64_t(b.slices().count(0));
                    expected += 2 * (b.n - own) + (zero == 0 ? 2 * own * (ranks - 1) : 0);
                    if (wire == Wire::Fp16) expected += 4 * (2 * (ranks - 1) / ranks);
                }
                EXPECT_EQ(result_of({ranks, zero, wire}).sent, expected);
            }
}
