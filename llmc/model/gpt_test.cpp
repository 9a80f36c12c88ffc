// The whole model on the CPU: its gradient is the derivative, recomputing changes no bit, padding
// never contributes, micro-batches add up.
#include "llmc/model/gpt.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "llmc/core/rng.h"
#include "llmc/model/tiny_models.h"
#include "llmc/ops/classifier.h"
#include "llmc/parallel/liveness.h"

namespace {
struct TinyModel {
    std::unique_ptr<Comm> comm = comm_self();
    Memory<CpuStream> memory{CpuStream{}};
    ModelConfig cfg;
    Shards<float, CpuStream> shards;
    Gpt<float, CpuStream> gpt;
    std::vector<int> tokens, targets;

    TinyModel(ModelConfig c, int B, int T, Recompute recompute = Recompute::None,
              ShardsConfig config = {})
        : cfg(c),
          shards(param_layout(c), config, *comm, memory),
          gpt(gpt_create<float>(c, B, T, recompute, false, memory)) {
        for (TensorSlice& s : shards.master_slices()) {
            param_init(s.data, *s.tensor, 0, s.count, 1);
            // Larger than GPT-2's, so that every path has a gradient worth testing.
            for (int64_t i = 0; i < s.count; i++)
                s.data[i] = s.data[i] * (s.tensor->init_std > 0 ? 10.f : 1.f) +
                            0.1f * random_uniform(2, name_hash(s.tensor->name), uint64_t(i));
        }
        for (int i = 0; i < B * T; i++) {
            tokens.push_back(int(random_bits(3, 0, uint64_t(i)) % unsigned(c.V)));
            targets.push_back(int(random_bits(3, 1, uint64_t(i)) % unsigned(c.V)));
        }
        targets[1] = kIgnoreTarget;
    }
    double loss(float scale) {
        gpt_loss_reset(gpt);
        gpt_forward_loss(gpt, shards, tokens.data(), targets.data());
        return fixed_sum_value(gpt_loss_sum(gpt)) * scale;
    }
    // The gradient of every tensor, read where backward wrote it (fp32, single micro-batch).
    std::vector<float> gradients(float scale) {
        gpt_loss_reset(gpt);
        gpt_forward_backward(gpt, shards, tokens.data(), targets.data(), scale);
        const float* g = shards.grads_acquire(0);
        return {g, g + shards.layout().size};
    }
    // Of the gradients so far, without a limit.
    float norm() {
        shards.clip(0, gpt.loss_sum);
        return shards.norm();
    }
};

void expect_same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    ASSERT_EQ(a.size(), b.size());
    EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
}
}  // namespace

// The watchdog must not take a slow micro-batch for a hang: each layer is a sign of life, forward
// and backward, and so is each piece of the head.
TEST(gpt, a_layer_is_a_sign_of_life) {
    TinyModel m(tiny_models()[0], 2, 7);
    const int pieces = (2 * 7 + m.gpt.acts.head_rows - 1) / m.gpt.acts.head_rows;
    int64_t before = liveness_count();
    m.loss(1);
    EXPECT_EQ(liveness_count() - before, m.cfg.L + pieces);
    before = liveness_count();
    m.gradients(1);
    EXPECT_EQ(liveness_count() - before, 2 * m.cfg.L + pieces);
}

class gpt_kind : public testing::TestWithParam<ModelConfig> {};
INSTANTIATE_TEST_SUITE_P(all, gpt_kind, testing::ValuesIn(tiny_models()));

TEST_P(gpt_kind, backward_is_the_derivative) {
    TinyModel m(GetParam(), 2, 7);
    const float scale = 1.f / 13;
    const std::vector<float> grad = m.gradients(scale);
    const ParamLayout& layout = m.shards.layout();
    for (const ParamBlock& b : layout.blocks)
        for (const ParamTensor& t : b.tensors)
            for (int k = 0; k < 5; k++) {
                // Rows of wpe that are in use, or any element.
                const int64_t range = t.name == "transformer.wpe.weight" ? 7 * m.cfg.C : t.count();
                const int64_t i = int64_t(random_bits(4, name_hash(t.name), uint64_t(k))) % range;
                if (i < 0) continue;
                float* x = m.shards.params_acquire(0) + b.offset + t.offset + i;
                const float x0 = *x, h = 1e-2f;
                *x = x0 + h;
                const double up = m.loss(scale);
                *x = x0 - h;
                const double down = m.loss(scale);
                *x = x0;
                // Central differences: h^2 f'''/6 plus the noise of an fp32 forward (about 1e-6)
                // over 2h.
                const double expected = (up - down) / (2 * h);
                EXPECT_NEAR(grad[size_t(b.offset + t.offset + i)], expected,
                            1e-3 + 1e-2 * std::abs(expected))
                    << t.name << "[" << i << "]";
            }
}

TEST_P(gpt_kind, recomputing_changes_no_bit) {
    std::vector<float> kept = TinyModel(GetParam(), 2, 7).gradients(0.1f);
    for (Recompute r : {Recompute::Selective, Recompute::Block}) {
        TinyModel m(GetParam(), 2, 7, r);
        expect_same_bits(m.gradients(0.1f), kept);
    }
}

TEST_P(gpt_kind, padding_gets_no_gradient_and_gives_no_probability) {
    TinyModel m(GetParam(), 2, 7);
    const double before = m.loss(1);
    const std::vector<float> grad = m.gradients(0.1f);
    const ParamLayout& layout = m.shards.layout();
    for (const ParamBlock& b : layout.blocks)
        for (const ParamTensor& t : b.tensors)
            for (int64_t i = t.count(); i < t.size; i++) {
                ASSERT_EQ(grad[size_t(b.offset + t.offset + i)], 0.f) << t.name;
                m.shards.params_acquire(0)[b.offset + t.offset + i] = 5.f;
            }
    EXPECT_EQ(m.loss(1), before);  // padding rows of the head's matrix do not matter
}

TEST(gpt, positions_beyond_seq_len_get_no_gradient) {
    TinyModel m(tiny_config(true), 2, 7);
    const std::vector<float> grad = m.gradients(0.1f);
    const ParamTensor& wpe = m.shards.layout().blocks[0].tensors[1];
    double used = 0;
    for (int64_t i = 0; i < wpe.count(); i++) {
        const float g = grad[size_t(wpe.offset + i)];
        if (i < 7 * m.cfg.C)
            used += std::abs(g);
        else
            ASSERT_EQ(g, 0.f);
    }
    EXPECT_GT(used, 0);
}

// Two micro-batches of one sequence == one micro-batch of two, up to fp32 rounding; and in
// canonical mode their order does not matter at all.
TEST(gpt, micro_batches_add_up) {
    const ModelConfig c = tiny_config(true);
    TinyModel whole(c, 2, 7);
    const std::vector<float> both = whole.gradients(0.1f);
    const float norm = whole.norm();

    auto run = [&](int first, int second, Reduction reduction) {
        TinyModel m(c, 1, 7, Recompute::None, {.reduction = reduction, .micro_batches = 2});
        for (int b : {first, second})
            gpt_forward_backward(m.gpt, m.shards, whole.tokens.data() + b * 7,
                                 whole.targets.data() + b * 7, 0.1f);
        const float n = m.norm();
        m.shards.step({0.1f, 0.9f, 0.95f, 1e-8f, 0.1f, 1});
        const float* p = m.shards.params_acquire(0);
        return std::pair(n, std::vector<float>(p, p + m.shards.layout().size));
    };
    const auto [n01, p01] = run(0, 1, Reduction::Canonical);
    const auto [n10, p10] = run(1, 0, Reduction::Canonical);
    const auto [nfast, pfast] = run(0, 1, Reduction::Fast);
    EXPECT_EQ(n01, n10);
    expect_same_bits(p01, p10);
    EXPECT_NEAR(n01, norm, 1e-5 * norm);  // fp32 rounding of the gradients
    EXPECT_NEAR(nfast, norm, 1e-5 * norm);
    EXPECT_GT(norm, 0);
    // AdamW's first step moves every weight with a gradient by lr: both ways must have moved, and
    // to the same place.
    const float* start = whole.shards.params_acquire(0);
    double moved = 0;
    for (size_t i = 0; i < p01.size(); i++) {
        moved += std::abs(double(p01[i]) - start[i]);
        if (std::abs(both[i]) > 1e-5f) {
            ASSERT_NEAR(p01[i], pfast[i], 1e-3) << i;
        }
    }
    EXPECT_GT(moved / double(p01.size()), 0.01);
}

TEST(gpt, a_gradient_out_of_range_makes_the_norm_nan_and_skips_cleanly) {
    const ModelConfig c = tiny_config(true);
    TinyModel m(c, 1, 7, Recompute::None, {.micro_batches = 2});
    const std::vector<float> before(m.shards.params_acquire(0),
                                    m.shards.params_acquire(0) + m.shards.layout().size);
    for (float bad : {NAN, INFINITY, 1e30f}) {
        gpt_forward_backward(m.gpt, m.shards, m.tokens.data(), m.targets.data(), 0.1f);
        m.shards.grads_acquire(1)[5] = bad;
        m.shards.grads_release(1);
        EXPECT_TRUE(std::isnan(m.norm()));
        m.shards.step({0.1f, 0.9f, 0.95f, 1e-8f, 0.1f, 1});
        expect_same_bits(
            {m.shards.params_acquire(0), m.shards.params_acquire(0) + m.shards.layout().size},
            before);
    }
    // The next step starts from a clean gradient.
    gpt_forward_backward(m.gpt, m.shards, m.tokens.data(), m.targets.data(), 0.1f);
    EXPECT_TRUE(std::isfinite(m.norm()));
}
