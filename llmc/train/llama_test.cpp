// A trained LLaMA of 260,032 parameters (TEST_DATA/stories260K) against known answers: logits and
// greedy text of llama2.c, loss, gradients and AdamW steps of a float64 program.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "llmc/model/decode.h"
#include "llmc/model/gpt.h"
#include "llmc/train/model_file.h"
#include "llmc/train/saves.h"

namespace {
struct Stories : testing::Test {
    std::string folder;
    nlohmann::json reference;
    ModelConfig cfg;
    std::unique_ptr<Comm> comm = comm_self();
    Memory<CpuStream> memory{CpuStream{}};
    std::unique_ptr<Shards<float, CpuStream>> shards;

    void SetUp() override {
        const char* root = std::getenv("TEST_DATA");
        folder = std::string(root ? root : "data/test") + "/stories260K";
        std::ifstream in(folder + "/reference.json");
        if (!in) GTEST_SKIP() << "no " << folder << " (data/fetch_test_data.sh brings it)";
        reference = nlohmann::json::parse(in);
        const ModelFile file = model_file_open(folder + "/stories260K.bin");
        cfg = file.cfg;
        shards = std::make_unique<Shards<float, CpuStream>>(param_layout(cfg), ShardsConfig{},
                                                            *comm, memory);
        ASSERT_EQ(shards->layout().count, 260032);
        weights_fill(*shards, file.read);
    }
};

// The reference's name of the tensor in a slot; rows that it keeps apart are one matrix here.
double norm_of(const ParamLayout& layout, const float* grads, int slot, int64_t first_row,
               int64_t rows) {
    double sum = 0;
    for (int l = 0; l + 2 < int(layout.blocks.size()); l++) {
        const ParamBlock& b = layout.blocks[size_t(layout.layer(l))];
        for (const ParamTensor& t : b.tensors) {
            if (t.slot != slot) continue;
            const int64_t columns = t.count() / t.shape[0];
            const float* g = grads + b.offset + t.offset + first_row * columns;
            for (int64_t i = 0; i < rows * columns; i++) sum += double(g[i]) * double(g[i]);
        }
    }
    return std::sqrt(sum);
}
}  // namespace

TEST_F(Stories, logits_are_llama2c_s) {
    std::vector<float> expected(16 * size_t(cfg.V));
    std::ifstream in(folder + "/logits_first16.f32", std::ios::binary);
    ASSERT_TRUE(in.read(reinterpret_cast<char*>(expected.data()),
                        std::streamsize(expected.size() * sizeof(float))));
    Decoder<float, CpuStream> decoder(cfg, 16, 16, memory);
    for (int t = 0; t < 16; t++) {
        const int token = reference.at("greedy_tokens").at(size_t(t));
        const float* logits = decoder.feed(*shards, &token, 1);
        // The float program that wrote them is within 1.7e-5 of a float64 one; so may we be.
        for (int v = 0; v < cfg.V; v++)
            ASSERT_NEAR(logits[v], expected[size_t(t * cfg.V + v)], 4e-5) << t << " " << v;
    }
}

TEST_F(Stories, greedy_tokens_are_the_known_ones) {
    const std::vector<int> expected = reference.at("greedy_tokens");
    ASSERT_EQ(expected.size(), 201u);
    Decoder<float, CpuStream> decoder(cfg, 201, 1, memory);
    std::vector<int> tokens = {expected[0]};
    while (tokens.size() < expected.size()) {
        const float* logits = decoder.feed(*shards, &tokens.back(), 1);
        tokens.push_back(int(std::max_element(logits, logits + cfg.V) - logits));
    }
    EXPECT_EQ(tokens, expected);
}

TEST_F(Stories, loss_gradients_and_adamw_steps_are_the_float64_ones) {
    const std::vector<int> text = reference.at("tokens");
    const std::vector<int> tokens(text.begin(), text.end() - 1),
        targets(text.begin() + 1, text.end());
    const int T = int(tokens.size());
    auto gpt = gpt_create<float>(cfg, 1, T, Recompute::None, false, memory);
    const std::vector<double> losses = reference.at("loss");
    for (size_t step = 0; step < losses.size(); step++) {
        gpt_loss_reset(gpt);
        gpt_forward_backward(gpt, *shards, tokens.data(), targets.data(), 1.f / float(T));
        // Rounding of fp32 weights and sums, which each step's division by sqrt(v) may enlarge.
        EXPECT_NEAR(fixed_sum_value(gpt_loss_sum(gpt)) / T, losses[step],
                    (step ? 3e-5 : 2e-6) * losses[step])
            << step;
        if (step == 0) {
            const float* g = shards->grads_acquire(0);
            const nlohmann::json& l2 = reference.at("grad_l2");
            const int64_t C = cfg.C, F = cfg.F, kv = cfg.KV * cfg.HS();
            struct Part {
                const char* name;
                int slot;
                int64_t first, rows;
            };
            for (const Part& p : {Part{"att_norm", 0, 0, C},
                                  {"wq", 2, 0, C},
                                  {"wk", 2, C, kv},
                                  {"wv", 2, C + kv, kv},
                                  {"wo", 4, 0, C},
                                  {"ffn_norm", 6, 0, C},
                                  {"w1", 8, 0, F},
                                  {"w2", 10, 0, C},
                                  {"w3", 8, F, F}}) {
                const double expected = l2.at(p.name);
                EXPECT_NEAR(norm_of(shards->layout(), g, p.slot, p.first, p.rows), expected,
                            1e-5 * expected)
                    << p.name;
            }
            shards->clip(0, gpt.loss_sum);
            EXPECT_NEAR(shards->norm(), reference.at("grad_global_l2").get<double>(), 1e-5 * 16.2);
        }
        shards->reduce();
        shards->clip(0, gpt.loss_sum);
        // The reference decays every tensor; ours spares vectors.
        for (TensorSlice& s : shards->master_slices())
            if (!s.tensor->decay)
                for (int64_t i = 0; i < s.count; i++) s.data[i] *= 1 - 1e-3f * 0.1f;
        shards->step({1e-3f, 0.9f, 0.95f, 1e-8f, 0.1f, int(step) + 1});
    }
}
