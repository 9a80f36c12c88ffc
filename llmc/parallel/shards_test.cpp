// Shards on every backend of the build: the optimizer's state has the CPU's bits, bf16 parameters
// are the masters rounded, what is skipped changes nothing, the state travels through host memory.
#include "llmc/parallel/shards.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "llmc/core/rng.h"
#include "llmc/parallel/shards_testing.h"

namespace {
template <class Elem_, class Stream_>
struct Backend {
    using Elem = Elem_;
    using Stream = Stream_;
};

// A run of optimizer steps on made-up gradients.
template <class Elem, class Stream>
struct Trainer {
    std::unique_ptr<Comm> comm = comm_self();
    Stream s;
    Memory<Stream> memory{s};
    Shards<Elem, Stream> shards;
    FixedSum* loss;
    int micro_batches;

    explicit Trainer(ShardsConfig config = {})
        : shards(odd_layout(), config, *comm, memory),
          loss(memory.template get<FixedSum>("test", "loss", 1)),
          micro_batches(int(config.micro_batches)) {
        if (!config.inference) fill(0);
    }
    void fill(int64_t updates) {
        for (TensorSlice& t : shards.master_slices())
            random_normal(t.data, size_t(t.count), 0, 0, 1, 1, name_hash(t.tensor->name));
        shards.state_from_host(updates);
    }
    // Gradients of one step; `bad` takes the place of one element.
    void backward(int step, float bad = 1) {
        const ParamLayout& layout = shards.layout();
        for (int i = 0; i < micro_batches; i++)
            for (int b = layout.head(); b >= 0; b--) {
                float* device = shards.grads_acquire(b);
                std::vector<float> g(size_t(layout.blocks[b].size), 0.f);
                for (const ParamTensor& t : layout.blocks[b].tensors)
                    random_normal(g.data() + t.offset, size_t(t.count()), 0, 0, 0.3f,
                                  uint64_t(step * 100 + i), name_hash(t.name));
                if (b == 1 && i == 0 && bad != 1) g[5] = bad;
                memory_from_host(device, g.data(), g.size() * sizeof(float), s);
                shards.grads_release(b);
            }
    }
    float step(int t, double most = 1, float bad = 1, bool skip = false) {
        backward(t, bad);
        shards.reduce();
        shards.clip(most, loss);
        if (skip) shards.skip();
        shards.step({0.05f, 0.9f, 0.95f, 1e-8f, 0.1f, t});
        shards.gather();
        return shards.norm();
    }
    // Weights, m and v, in the order of the layout.
    std::vector<float> state() {
        shards.state_to_host();
        std::vector<float> out;
        for (const auto& slices :
             {shards.master_slices(), shards.moment_m_slices(), shards.moment_v_slices()})
            for (const TensorSlice& t : slices) out.insert(out.end(), t.data, t.data + t.count);
        return out;
    }
    std::vector<Elem> params() {
        std::vector<Elem> x(size_t(shards.layout().size));
        memory_to_host(x.data(), shards.params_acquire(0), x.size() * sizeof(Elem), s);
        return x;
    }
};

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

ShardsConfig config_of(int64_t micro_batches, Reduction reduction = Reduction::Canonical,
                       bool stochastic = false) {
    ShardsConfig c;
    c.micro_batches = micro_batches;
    c.reduction = reduction;
    c.stochastic_rounding = stochastic;
    c.seed = 9;
    return c;
}
}  // namespace

template <class B>
struct shards : testing::Test {
    using Elem = typename B::Elem;
    using Stream = typename B::Stream;
    using Mine = Trainer<Elem, Stream>;
};
using Backends = testing::Types<Backend<float, CpuStream> FOR_CUDA(, Backend<float, CudaStream>,
                                                                   Backend<bf16, CudaStream>)>;
TYPED_TEST_SUITE(shards, Backends);

TYPED_TEST(shards, ten_steps_leave_the_state_of_the_cpu) {
    for (const ShardsConfig& c : {config_of(1), config_of(3), config_of(1, Reduction::Fast)}) {
        Trainer<float, CpuStream> cpu(c);
        typename TestFixture::Mine mine(c);
        const std::vector<float> start = cpu.state();
        for (int t = 1; t <= 10; t++) {
            const double most = t % 2 ? 0.5 : 0;
            const float expected = cpu.step(t, most), norm = mine.step(t, most);
            ASSERT_GT(expected, 1);
            ASSERT_EQ(norm, expected) << t;
        }
        EXPECT_TRUE(same_bits(mine.state(), cpu.state()));
        EXPECT_FALSE(same_bits(mine.state(), start));
    }
}

// Without a gradient a step is decay alone: lr * decay of a matrix, nothing of a vector.
TYPED_TEST(shards, matrices_decay_and_vectors_do_not) {
    typename TestFixture::Mine mine(config_of(1));
    const std::vector<float> start = mine.state();
    mine.shards.clip(1, mine.loss);
    mine.shards.step({0.05f, 0.9f, 0.95f, 1e-8f, 0.1f, 1});
    mine.shards.state_to_host();
    size_t at = 0;
    for (const TensorSlice& t : mine.shards.master_slices())
        for (int64_t i = 0; i < t.count; i++, at++)
            // One rounding of the result, and those of the far smaller decay.
            ASSERT_NEAR(t.data[i], start[at] * (t.tensor->decay ? 1 - 0.05 * 0.1 : 1.0),
                        0x1p-23 * std::abs(start[at]))
                << t.tensor->name;
}

TYPED_TEST(shards, parameters_are_the_masters_rounded) {
    using Elem = typename TestFixture::Elem;
    typename TestFixture::Mine mine(config_of(3));
    for (int t = 1; t <= 3; t++) mine.step(t);
    const std::vector<Elem> params = mine.params();
    mine.shards.state_to_host();
    for (size_t b = 0, at = 0; b < mine.shards.layout().blocks.size(); b++)
        for (const ParamTensor& t : mine.shards.layout().blocks[b].tensors) {
            const float* master = mine.shards.master_slices()[at++].data;
            const Elem* p = params.data() + mine.shards.layout().blocks[b].offset + t.offset;
            for (int64_t i = 0; i < t.count(); i++) {
                if constexpr (std::is_same_v<Elem, bf16>)
                    ASSERT_EQ(p[i].bits, to_bf16(master[i]).bits) << t.name << " " << i;
                else
                    ASSERT_EQ(p[i], master[i]) << t.name << " " << i;
            }
            for (int64_t i = t.count(); i < t.size; i++)
                ASSERT_EQ(to_float(p[i]), 0.f) << "padding of " << t.name;
        }
}

TYPED_TEST(shards, a_skipped_step_changes_nothing_but_clears_the_gradient) {
    for (int64_t micro_batches : {1, 3}) {
        typename TestFixture::Mine mine(config_of(micro_batches)), clean(config_of(micro_batches));
        const std::vector<float> start = mine.state();
        const auto params = mine.params();
        for (float bad : {NAN, INFINITY, -INFINITY}) {
            EXPECT_TRUE(std::isnan(mine.step(1, 1, bad)));
            EXPECT_TRUE(same_bits(mine.state(), start)) << bad;
        }
        if (micro_batches > 1) {
            EXPECT_TRUE(std::isnan(mine.step(1, 1, 1e30f)));  // beyond the fixed-point range
        }
        mine.step(1, 1, 1, true);
        EXPECT_TRUE(same_bits(mine.state(), start));
        EXPECT_TRUE(same_bits(mine.params(), params));
        // Nothing of all that is left in the gradient.
        EXPECT_EQ(mine.step(1), clean.step(1));
        EXPECT_TRUE(same_bits(mine.state(), clean.state()));
    }
}

TYPED_TEST(shards, a_loss_that_is_not_finite_skips_the_step) {
    typename TestFixture::Mine mine(config_of(1));
    const std::vector<float> start = mine.state();
    FixedSum bad;
    fixed_sum_add(bad, NAN);
    memory_from_host(mine.loss, &bad, sizeof bad, mine.s);
    EXPECT_TRUE(std::isfinite(mine.step(1)));
    EXPECT_TRUE(same_bits(mine.state(), start));
}

// Saved, put into a fresh object and stepped on: as if nothing had happened in between.
TYPED_TEST(shards, the_state_goes_through_host_memory_and_back) {
    for (bool stochastic : {false, true}) {
        const ShardsConfig c = config_of(3, Reduction::Canonical, stochastic);
        typename TestFixture::Mine one(c), two(c);
        for (int t = 1; t <= 3; t++) one.step(t);
        one.shards.state_to_host();
        const auto copy = [](const std::vector<TensorSlice>& from, std::vector<TensorSlice> to) {
            for (size_t i = 0; i < from.size(); i++)
                std::copy(from[i].data, from[i].data + from[i].count, to[i].data);
        };
        copy(one.shards.master_slices(), two.shards.master_slices());
        copy(one.shards.moment_m_slices(), two.shards.moment_m_slices());
        copy(one.shards.moment_v_slices(), two.shards.moment_v_slices());
        two.shards.state_from_host(3);
        EXPECT_TRUE(same_bits(one.params(), two.params()));
        one.step(4), two.step(4);
        EXPECT_TRUE(same_bits(one.params(), two.params()));
        EXPECT_TRUE(same_bits(one.state(), two.state()));
    }
}

TYPED_TEST(shards, inference_holds_parameters_alone) {
    ShardsConfig c;
    c.inference = true;
    typename TestFixture::Mine mine(c), full;
    mine.fill(0);
    EXPECT_TRUE(same_bits(mine.params(), full.params()));
    const int64_t rest = mine.memory.plan().total() - mine.memory.plan().total("parameters");
    EXPECT_EQ(rest, int64_t(sizeof(FixedSum)));  // the test's own
}

#ifdef LLMC_CUDA
// Stochastic rounding picks a neighbour of the master, differs from step to step and tensor to
// tensor, and is right on average.
TEST(shards_bf16, rounding_by_chance_is_unbiased_and_a_function_of_the_step) {
    Trainer<bf16, CudaStream> mine(config_of(1, Reduction::Canonical, true));
    mine.fill(1);
    const std::vector<bf16> at_1 = mine.params();
    mine.fill(2);
    const std::vector<bf16> at_2 = mine.params();
    mine.fill(1);
    EXPECT_TRUE(same_bits(at_1, mine.params()));
    EXPECT_FALSE(same_bits(at_1, at_2));

    const TensorSlice t = mine.shards.master_slices()[2];  // 331 elements
    const int64_t offset = mine.shards.layout().blocks[1].offset + t.tensor->offset;
    const int kTrials = 100;
    double bias = 0, deviation = 0;
    for (int trial = 0; trial < kTrials; trial++) {
        mine.fill(trial);
        const std::vector<bf16> p = mine.params();
        for (int64_t i = 0; i < t.count; i++) {
            const double ulp = std::ldexp(1.0, std::ilogb(t.data[i]) - 7);
            const double error = (to_float(p[size_t(offset + i)]) - t.data[i]) / ulp;
            ASSERT_LT(std::abs(error), 1);
            bias += error, deviation += error * error;
        }
    }
    // The error of an element has mean 0 and variance f (1 - f) <= 1/4, so the mean of n elements
    // has a deviation of at most 0.5 / sqrt(n); 5 of these happen once in a million.
    const double n = double(kTrials) * double(t.count);
    EXPECT_LT(std::abs(bias / n), 5 * 0.5 / std::sqrt(n));
    EXPECT_NEAR(deviation / n, 1.0 / 6, 0.02);  // the mean of f (1 - f)

    // A quarter of the way up: equal values of two tensors are rounded up independently, one in
    // four.
    for (TensorSlice& s : mine.shards.master_slices()) std::fill_n(s.data, s.count, 1 + 0x1p-9f);
    mine.shards.state_from_host(1);
    const std::vector<bf16> p = mine.params();
    int ups = 0, equal = 0;
    for (int64_t i = 0; i < 111; i++) {
        ups += to_float(p[size_t(i)]) > 1;
        equal += p[size_t(i)].bits == p[size_t(offset + i)].bits;
    }
    EXPECT_NEAR(ups, 111 * 0.25, 5 * std::sqrt(111 * 3.0 / 16));
    EXPECT_NEAR(equal, 111 * 0.625, 5 * std::sqrt(111 * 0.625 * 0.375));
}
#endif
