// One curve whatever the layout: loss, gradient norm, parameters and moments have the same bits
// over 20 steps for any number of ranks, any split of the micro-batches over them, ZeRO stage,
// bucket size, overlap and recompute. A rank holds what the plan says and sends what the formulas
// say.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "llmc/core/check.h"
#include "llmc/core/hash.h"
#include "llmc/core/rng.h"
#include "llmc/model/gpt.h"
#include "llmc/model/tiny_models.h"
#include "llmc/ops/classifier.h"
#include "llmc/parallel/comm_testing.h"

namespace {

constexpr int kSteps = 20, kMicroBatches = 24, B = 1, T = 7;

// All sizes odd or prime; padded vocabulary; T shorter than the model's maximum.
ModelConfig toy_config(bool tied = true) {
    ModelConfig c;
    c.name = "toy";
    c.L = 3, c.H = c.KV = 3, c.C = 15, c.F = 23, c.V = 37, c.Vp = 128, c.max_T = 11, c.tied = tied;
    return c;
}

struct Layout {
    int ranks = 1, zero = 0;
    double bucket = 25e6;
    bool overlap = true;
    Recompute recompute = Recompute::None;
    Reduction reduction = Reduction::Canonical;
    Wire wire = Wire::Fp32;
    bool tied = true;
    int steps = kSteps;
    int model = -1;      // of tiny_models(); -1: the toy
    bool dealt = false;  // micro-batches are dealt like cards, not cut into runs
    ModelConfig config() const {
        return model < 0 ? toy_config(tied) : tiny_models()[size_t(model)];
    }
    std::string text() const {
        return str("ranks ", ranks, ", zero ", zero, ", bucket ", bucket, ", overlap ", overlap,
                   ", recompute ", int(recompute), ", reduction ", int(reduction), ", wire ",
                   int(wire), ", tied ", tied, ", model ", model, ", dealt ", dealt);
    }
};

// What rank 0 found, in memory that the parent sees.
struct Outcome {
    uint64_t curve;          // of the bits of every loss and norm
    uint64_t state[2];       // of all global tensors
    float losses[kSteps];    // to compare where bits may differ
    int64_t resident, sent;  // bytes
    double hidden, exposed;  // seconds of communication
};

ShardsConfig shards_config(const Layout& l) {
    ShardsConfig c;
    c.zero = l.zero, c.reduction = l.reduction, c.micro_batches = kMicroBatches;
    c.bucket_bytes = l.bucket, c.overlap = l.overlap, c.wire = l.wire;
    return c;
}

// A micro-batch is a function of its global index alone. Some have few valid targets, one has none;
// so has the one that fills up a rank's, -1.
void toy_batch(int step, int micro, std::vector<int>& tokens, std::vector<int>& targets) {
    for (int i = 0; i < B * T; i++) {
        const uint64_t at = uint64_t((step * kMicroBatches + micro) * B * T + i);
        tokens[size_t(i)] = int(random_bits(3, 0, at) % 37);
        const int next = (5 * tokens[size_t(i)] + 3) % 37;                    // can be learnt
        targets[size_t(i)] = i < micro % (B * T + 1) ? next : kIgnoreTarget;  // -1 % 8 is -1
    }
}

// Which micro-batches a rank works on. All have equally many: what is missing is empty, -1.
std::vector<int> micro_batches_of(int rank, const Layout& l) {
    std::vector<int> mine;
    if (l.dealt)
        for (int m = rank; m < kMicroBatches; m += l.ranks) mine.push_back(m);
    else
        for (int m = kMicroBatches * rank / l.ranks; m < kMicroBatches * (rank + 1) / l.ranks; m++)
            mine.push_back(m);
    mine.resize(size_t(micro_batches_each(kMicroBatches, l.ranks)), -1);
    return mine;
}

// One rank of the run; all ranks must come to the same losses and norms.
Outcome train(const Layout& l, Comm& comm) {
    const ModelConfig cfg = l.config();
    const size_t before = memory_in_use(CpuStream{});
    Memory<CpuStream> memory{CpuStream{}};
    Shards<float, CpuStream> shards(param_layout(cfg), shards_config(l), comm, memory);
    auto gpt = gpt_create<float>(cfg, B, T, l.recompute, false, memory);
    Outcome out{};
    out.resident = int64_t(memory_in_use(CpuStream{}) - before);

    for (const TensorSlice& s : shards.master_slices())
        param_init(s.data, *s.tensor, s.first, s.count, 1);
    shards.state_from_host(0);

    std::vector<int> tokens(B * T), targets(B * T);
    const std::vector<int> mine = micro_batches_of(comm.rank(), l);
    for (int step = 0; step < l.steps; step++) {
        const int64_t sent = comm.bytes_sent();
        int64_t valid = 0;
        for (int m = 0; m < kMicroBatches; m++) valid += m % (B * T + 1);
        gpt_loss_reset(gpt);
        for (int m : mine) {
            toy_batch(step, m, tokens, targets);
            gpt_forward_backward(gpt, shards, tokens.data(), targets.data(), 1.f / float(valid));
        }
        shards.reduce();
        out.sent = comm.bytes_sent() - sent;
        shards.clip(0.5, gpt.loss_sum);
        const float lr = 1e-2f * std::min(1.f, float(step + 1) / 5);
        shards.step({lr, 0.9f, 0.95f, 1e-8f, 0.1f, step + 1});
        const int64_t clipped = comm.bytes_sent();
        shards.gather();
        out.sent += comm.bytes_sent() - clipped;
        out.losses[step] = float(fixed_sum_value(gpt_loss_sum(gpt)) / double(valid));
        for (float x : {out.losses[step], shards.norm()})
            out.curve = out.curve * 0x9e3779b97f4a7c15u + std::bit_cast<uint32_t>(x);
    }
    const CommQueue::Times times = shards.take_comm_times();
    out.hidden = times.hidden(), out.exposed = times.exposed;

    TensorHash hash;
    uint64_t salt = 0;
    for (const auto& pieces :
         {shards.master_slices(Pieces::Owned), shards.moment_m_slices(Pieces::Owned),
          shards.moment_v_slices(Pieces::Owned)}) {
        salt++;
        for (const TensorSlice& s : pieces)
            hash.add(tensor_hash(s.data, size_t(s.count),
                                 uint64_t(s.first) + salt * (name_hash(s.tensor->name) | 1)));
    }
    int64_t sums[2] = {int64_t(hash.a), int64_t(hash.b)};
    comm.all_reduce(sums, 2);
    out.state[0] = uint64_t(sums[0]), out.state[1] = uint64_t(sums[1]);

    int64_t least = int64_t(out.curve), most = least;
    comm.all_reduce(&least, 1, ReduceOp::Min);
    comm.all_reduce(&most, 1, ReduceOp::Max);
    EXPECT_EQ(least, most) << "ranks disagree about losses or norms";
    return out;
}

Outcome outcome_of(const Layout& l) {
    void* memory =
        ::mmap(nullptr, sizeof(Outcome), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_TRUE(on_ranks(l.ranks, [&](Comm& comm) {
        const Outcome out = train(l, comm);
        if (comm.rank() == 0) std::memcpy(memory, &out, sizeof out);
    })) << l.text();
    Outcome out;
    std::memcpy(&out, memory, sizeof out);
    ::munmap(memory, sizeof(Outcome));
    return out;
}

void expect_same(const Outcome& one, const Layout& l) {
    const Outcome out = outcome_of(l);
    EXPECT_EQ(out.curve, one.curve) << l.text();
    EXPECT_EQ(out.state[0], one.state[0]) << l.text();
    EXPECT_EQ(out.state[1], one.state[1]) << l.text();
}

bool deep() {
    const char* text = std::getenv("TEST_DEEP");
    return text && *text == '1';
}

constexpr double kBuckets[] = {1024, 7 * 1024, 25e6};

}  // namespace

TEST(layouts, one_curve) {
    const Outcome one = outcome_of({});
    EXPECT_LT(one.losses[kSteps - 1], one.losses[0]);
    int layouts = 0, turn = 0;
    Layout l;
    for (int ranks : {1, 2, 3, 4, 5, 7, 8})  // 24 micro-batches: 5 and 7 do not divide them
        for (int zero : {0, 1, 2, 3})
            for (double bucket : kBuckets)
                for (bool overlap : {true, false})
                    for (Recompute recompute :
                         {Recompute::None, Recompute::Selective, Recompute::Block})
                        for (bool dealt : {false, true}) {
                            // Each value of each axis meets each of the first two, at least once.
                            if (!deep() && turn++ % 13) continue;
                            l.ranks = ranks, l.zero = zero, l.bucket = bucket, l.overlap = overlap;
                            l.recompute = recompute, l.dealt = dealt;
                            expect_same(one, l);
                            layouts++;
                        }
    std::printf("%d layouts, one hash: %016llx%016llx, curve %016llx\n", layouts,
                (unsigned long long)one.state[0], (unsigned long long)one.state[1],
                (unsigned long long)one.curve);
}

TEST(layouts, one_curve_with_a_head_of_its_own) {
    Layout l;
    l.tied = false;
    const Outcome one = outcome_of(l);
    for (int ranks : {2, 3})
        for (int zero : {0, 1, 2, 3}) {
            l.ranks = ranks, l.zero = zero, l.bucket = kBuckets[zero % 3];
            expect_same(one, l);
        }
}

// The kinds that GPT-2 is not: LLaMA, with biases of q, k, v, with norms of their heads.
TEST(layouts, one_curve_of_each_kind_of_model) {
    const std::vector<ModelConfig> models = tiny_models();
    for (int model = 0; model < int(models.size()); model++) {
        if (models[size_t(model)].positions == Positions::Learned) continue;
        Layout l;
        l.model = model;
        const Outcome one = outcome_of(l);
        EXPECT_LT(one.losses[kSteps - 1], one.losses[0]) << models[size_t(model)].name;
        for (int ranks : {2, 3})
            for (int zero : {0, 1, 2, 3}) {
                l.ranks = ranks, l.zero = zero, l.bucket = kBuckets[zero % 3];
                l.recompute = Recompute((zero + ranks) % 3);
                expect_same(one, l);
            }
    }
}

// In fast mode ranks add in fp32. How far a gradient and its norm may then be from exact sums is
// derived and checked in parallel/reduction_test.cpp. Here: nothing but gradients differs, so the
// first loss has the same bits, all ranks come to the same losses and norms (train expects it), and
// the run learns.
TEST(layouts, fast_reduction_is_the_same_model) {
    const Outcome one = outcome_of({});
    for (int ranks : {1, 2, 3})
        for (int zero : {0, 1, 2, 3}) {
            Layout l{ranks, zero, kBuckets[(zero + ranks) % 3]};
            l.reduction = Reduction::Fast;
            const Outcome out = outcome_of(l);
            EXPECT_EQ(out.losses[0], one.losses[0]) << l.text();
            EXPECT_LT(out.losses[kSteps - 1], one.losses[0]) << l.text();
        }
}

TEST(layouts, a_rank_holds_what_the_plan_says) {
    for (int ranks : {1, 2, 3, 8})
        for (int zero : {0, 1, 2, 3})
            for (Reduction reduction : {Reduction::Canonical, Reduction::Fast}) {
                Layout l{ranks, zero, kBuckets[ranks % 3]};
                l.reduction = reduction, l.steps = 2;
                const ModelConfig cfg = toy_config();
                omp_set_num_threads(1);  // as on_ranks does: scratch grows with the threads
                Memory<CpuStream> memory(CpuStream{}, MemoryMode::Measure);
                const auto comm = comm_absent(ranks);
                Shards<float, CpuStream>(param_layout(cfg), shards_config(l), *comm, memory);
                gpt_create<float>(cfg, B, T, l.recompute, false, memory);
                EXPECT_EQ(outcome_of(l).resident, memory.plan().total()) << l.text();
            }
}

// P elements, N ranks, m micro-batches a rank; every bucket divides, so the formulas are exact.
TEST(layouts, a_rank_sends_what_the_formulas_say) {
    for (int ranks : {2, 4}) {
        const ModelConfig cfg = toy_config();
        const ParamLayout layout = param_layout(cfg);
        const int64_t m = kMicroBatches / ranks, N = ranks;
        for (int zero : {0, 1, 2, 3})
            for (Reduction reduction : {Reduction::Canonical, Reduction::Fast}) {
                Layout l{ranks, zero, 1024.};
                l.reduction = reduction, l.steps = 2;
                // Rank 0's slices are full: it sends the most, and its part of all-gathers exactly.
                const Slicing s = shards_slicing(layout, shards_config(l), ranks);
                int64_t own = 0, others = 0;
                for (const Bucket& b : s.buckets) {
                    own += int64_t(b.slices().count(0));
                    others += b.n - int64_t(b.slices().count(0));
                }
                const int64_t sum = reduction == Reduction::Canonical ? 8 : 4;
                const int64_t P = layout.size, gather = own * (N - 1) * 4;
                int64_t expected = 0;
                if (zero == 0)  // 2 P (N-1)/N
                    for (const Bucket& b : s.buckets) expected += 2 * b.n * (N - 1) / N * sum;
                if (zero == 1) expected = others * sum + gather;
                if (zero == 2) expected = m * others * 4 + gather;
                if (zero == 3) expected = m * (others * 4 + 2 * gather);
                EXPECT_EQ(outcome_of(l).sent, expected) << l.text();
                // And the slices are equal but for the last of each bucket.
                EXPECT_LE(std::abs(others - P * (N - 1) / N),
                          int64_t(s.buckets.size()) * kTensorAlign);
            }
    }
}

// A step to which one rank adds `bad`, then a sound one: the first updates nothing anywhere.
void skips_what_cannot_be_added(const Layout& l, float bad) {
    const std::string what = str(l.text(), ", adding ", bad);
    EXPECT_TRUE(on_ranks(l.ranks, [&](Comm& comm) {
        Memory<CpuStream> memory{CpuStream{}};
        Shards<float, CpuStream> shards(param_layout(toy_config()), shards_config(l), comm, memory);
        auto* loss = memory.get<FixedSum>("test", "loss", 1);
        for (const TensorSlice& s : shards.master_slices())
            param_init(s.data, *s.tensor, s.first, s.count, 1);
        shards.state_from_host(0);
        const auto hash = [&] {
            TensorHash h;
            for (const auto& slices :
                 {shards.master_slices(), shards.moment_m_slices(), shards.moment_v_slices()})
                for (const TensorSlice& s : slices)
                    h.add(tensor_hash(s.data, size_t(s.count), uint64_t(s.first)));
            int64_t sum = int64_t(h.a ^ h.b);  // over ranks: some hold nothing but padding
            comm.all_reduce(&sum, 1);
            return sum;
        };
        const int64_t before = hash();
        for (int step = 0; step < 2; step++) {
            for (int m = 0; m < kMicroBatches / l.ranks; m++)
                for (int b = shards.layout().head(); b >= 0; b--) {
                    float* g = shards.grads_acquire(b);
                    g[0] += 0.01f;
                    if (step == 0 && b == 1 && m == 1 && comm.rank() == 1) g[3] += bad;
                    shards.grads_release(b);
                }
            shards.reduce();
            shards.clip(1, loss);
            shards.step({1e-3f, 0.9f, 0.95f, 1e-8f, 0.1f, 1});
            shards.gather();
            if (step == 0) {
                EXPECT_TRUE(std::isnan(shards.norm())) << what;
                EXPECT_EQ(hash(), before) << what;
            } else {
                EXPECT_GT(shards.norm(), 0) << what;
                EXPECT_NE(hash(), before) << what;
            }
        }
    }));
}

// One rank's gradient element is no number, or no fixed point could hold it, or it exceeds its
// share of the range, 2^18 / 24: no rank updates anything.
TEST(layouts, what_one_rank_cannot_add_is_skipped_by_all) {
    for (int zero : {0, 1, 2, 3})
        for (const float bad : {std::nanf(""), HUGE_VALF, 1e30f, 11000.f})
            skips_what_cannot_be_added({8, zero, 1024.}, bad);
}

// The same where sums are floats, whatever they travel as.
TEST(layouts, what_is_not_finite_on_one_rank_is_skipped_by_all_in_fast_mode) {
    for (int zero : {0, 1, 2, 3})
        for (const Wire wire : {Wire::Fp32, Wire::Bf16, Wire::Fp16})
            for (const float bad : {std::nanf(""), HUGE_VALF}) {
                Layout l{3, zero, 1024.};
                l.reduction = Reduction::Fast, l.wire = wire;
                skips_what_cannot_be_added(l, bad);
            }
}

namespace {
// The norms of steps whose gradients grow from step to step, all over, in the way of one, two or
// all micro-batches, with changing signs: 0 where the step is skipped.
struct Norms {
    float of[3][30];
};
Norms norms_of_large_gradients(const Layout& l) {
    auto* shared = static_cast<Norms*>(
        ::mmap(nullptr, sizeof(Norms), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    EXPECT_TRUE(on_ranks(l.ranks, [&](Comm& comm) {
        Memory<CpuStream> memory{CpuStream{}};
        Shards<float, CpuStream> shards(param_layout(toy_config()), shards_config(l), comm, memory);
        auto* loss = memory.get<FixedSum>("test", "loss", 1);
        shards.state_from_host(0);
        const std::vector<int> mine = micro_batches_of(comm.rank(), l);
        for (int way = 0; way < 3; way++)
            for (int k = 0; k < 30; k++) {
                const float large = std::exp2(12.f + 0.25f * float(k));  // to 2^19.25
                for (int m : mine)
                    for (int b = shards.layout().head(); b >= 0; b--) {
                        float* g = shards.grads_acquire(b);
                        const bool adds = m >= 0 && (way == 2 || m == 5 || (way == 1 && m == 18));
                        if (adds && b == 1) g[3] += way == 1 && m == 18 ? -large : large;
                        shards.grads_release(b);
                    }
                shards.reduce();
                shards.clip(1, loss);
                shards.step({0, 0.9f, 0.95f, 1e-8f, 0.1f, 1});
                shards.gather();
                const float norm = shards.norm();
                if (comm.rank() == 0) shared->of[way][k] = std::isnan(norm) ? 0.f : norm;
            }
    }));
    const Norms norms = *shared;
    ::munmap(shared, sizeof(Norms));
    return norms;
}
}  // namespace

// Whether a step is skipped is decided by the gradients of micro-batches, not by the sums that a
// rank or an order happens to have on the way.
TEST(layouts, how_large_a_gradient_may_be_does_not_depend_on_the_layout) {
    const Norms one = norms_of_large_gradients({});
    EXPECT_EQ(one.of[0][5], std::exp2(13.25f));  // below 2^18 / 24
    EXPECT_EQ(one.of[0][6], 0);                  // above
    EXPECT_EQ(one.of[1][5], 0);                  // two that cancel
    EXPECT_EQ(one.of[2][5], 24 * std::exp2(13.25f));
    EXPECT_EQ(one.of[2][6], 0);
    for (int ranks : {2, 3, 8})
        for (int zero : {0, 1, 2, 3})
            for (bool dealt : {false, true}) {
                Layout l{ranks, zero, 1024.};
                l.dealt = dealt;
                const Norms many = norms_of_large_gradients(l);
                EXPECT_EQ(std::memcmp(&many, &one, sizeof one), 0) << l.text();
            }
}
