// test_gpt.cu: the whole model against known answers.
//
// Real models with published activations (TEST_DATA) and a resumed against an uninterrupted run.
// What one op does is tested beside the op: llmc/ops/<op>_test.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "llmc/model/gpt.h"
#include "llmc/ops/classifier.h"

namespace {
// A folder of the test data, or "" with the reason printed as a skip by the caller.
std::string test_data(const std::string& name) {
    const char* root = std::getenv("TEST_DATA");
    return std::string(root ? root : "data/test") + "/" + name;
}

std::vector<unsigned char> base64(const std::string& text) {
    static const std::string digits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::vector<unsigned char> out;
    uint32_t bits = 0;
    int n = 0;
    for (char c : text) {
        if (c == '=') break;
        bits = bits << 6 | uint32_t(digits.find(c));
        if ((n += 6) >= 8) out.push_back((unsigned char)(bits >> (n -= 8)));
    }
    return out;
}

std::vector<float> floats(const nlohmann::json& tensor) {
    const std::vector<unsigned char> bytes = base64(tensor.at("data").get<std::string>());
    std::vector<float> x(bytes.size() / 4);
    std::memcpy(x.data(), bytes.data(), bytes.size());
    return x;
}

nlohmann::json json_file(const std::string& path) {
    std::ifstream in(path);
    return nlohmann::json::parse(in);
}

// A trained GPT-2-architecture model of 85,728 parameters that sorts letters; its lm_head is not
// tied. The activations were published with it; loss and gradient norms are a float64 program's.
struct NanoSort : testing::Test {
    std::unique_ptr<Comm> comm = comm_self();
    Memory<CpuStream> memory{CpuStream{}};
    std::unique_ptr<Shards<float, CpuStream>> shards;
    Gpt<float, CpuStream> gpt;
    nlohmann::json weights, partials, grads;
    static constexpr int B = 3, T = 11;
    std::vector<int> tokens, targets;

    void SetUp() override {
        const std::string folder = test_data("gpt_nano_sort");
        if (!std::ifstream(folder + "/gpt-nano-sort-model.json"))
            GTEST_SKIP() << "no " << folder << " (data/fetch_test_data.sh brings it)";
        weights = json_file(folder + "/gpt-nano-sort-model.json");
        partials = json_file(folder + "/gpt-nano-sort-t0-partials.json");
        grads = json_file(folder + "/grads.json");

        ModelConfig c;
        c.name = "nano-sort", c.L = 3, c.H = c.KV = 3, c.C = 48, c.F = 192, c.V = 3;
        c.Vp = vocab_padded(3), c.max_T = 11, c.tied = false;
        shards = std::make_unique<Shards<float, CpuStream>>(param_layout(c), ShardsConfig{}, *comm,
                                                            memory);
        gpt = gpt_create<float>(c, B, T, Recompute::None, false, memory);
        for (const TensorSlice& s : shards->master_slices()) {
            const std::vector<float> x = floats(weights.at(s.tensor->name));
            ASSERT_EQ(int64_t(x.size()), s.count) << s.tensor->name;
            std::copy(x.begin(), x.end(), s.data);
        }
        for (const auto& row : grads.at("idx"))
            for (int t = 0; t < T; t++) {
                tokens.push_back(row[size_t(t)]);
                targets.push_back(t + 1 < T ? int(row[size_t(t) + 1]) : kIgnoreTarget);
            }
    }

    // The published tensor against ours; fp32 sums of up to 192 terms: some 1e-6 of the size.
    void expect_near(const char* name, const float* ours) {
        const std::vector<float> published = floats(partials.at(name));
        float largest = 0;
        for (float x : published) largest = std::max(largest, std::abs(x));
        for (size_t i = 0; i < published.size(); i++)
            ASSERT_NEAR(ours[i], published[i], 2e-6 * std::max(1.f, largest)) << name << " " << i;
    }
};
}  // namespace

TEST_F(NanoSort, activations_are_the_published_ones) {
    gpt_forward(gpt, *shards, tokens.data());
    const auto& a = gpt.acts;
    expect_near("x", a.layers[0].res1);
    expect_near("ln1", a.layers[0].ln1);
    expect_near("qkv", a.layers[0].qkv);
    expect_near("y", a.layers[0].atty);
    expect_near("attnResid", a.layers[0].res2);
    expect_near("ln2", a.layers[0].ln2);
    expect_near("fc", a.layers[0].pre);
    expect_near("gelu", a.layers[0].act);
    expect_near("block0", a.layers[1].res1);
    expect_near("block1", a.layers[2].res1);
    expect_near("block2", a.resf);
    expect_near("ln_f", a.lnf);

    const ParamBlock& head = shards->layout().blocks.back();
    const float* lmw = head_params(head, shards->params_acquire(shards->layout().head())).lmw;
    std::vector<float> logits;
    for (int n = 0; n < B * T; n++)
        for (int v = 0; v < 3; v++) {
            double sum = 0;
            for (int k = 0; k < 48; k++) sum += double(a.lnf[n * 48 + k]) * double(lmw[v * 48 + k]);
            logits.push_back(float(sum));
        }
    expect_near("lm_head", logits.data());
}

TEST_F(NanoSort, loss_and_gradient_norms_are_the_float64_ones) {
    gpt_loss_reset(gpt);
    gpt_forward_backward(gpt, *shards, tokens.data(), targets.data(), 1.f / 30);
    const double loss = fixed_sum_value(gpt_loss_sum(gpt)) / 30;
    EXPECT_NEAR(loss, grads.at("loss").get<double>(), 2e-6 * 7.5);

    const float* g = shards->grads_acquire(0);
    int tensors = 0;
    for (const ParamBlock& b : shards->layout().blocks)
        for (const ParamTensor& t : b.tensors) {
            double sum = 0;
            for (int64_t i = 0; i < t.count(); i++)
                sum += double(g[b.offset + t.offset + i]) * double(g[b.offset + t.offset + i]);
            const double expected = grads.at("grad_l2").at(t.name);
            // Gradients pass through three layers of fp32: 1e-5 of the norm.
            EXPECT_NEAR(std::sqrt(sum), expected, 1e-5 * expected) << t.name;
            tensors++;
        }
    EXPECT_EQ(tensors, int(grads.at("grad_l2").size()));
}

// The model was trained to sort: fed a sequence and its own output, it must continue in order.
TEST_F(NanoSort, it_sorts) {
    gpt_forward(gpt, *shards, tokens.data());
    const ParamBlock& head = shards->layout().blocks.back();
    const float* lmw = head_params(head, shards->params_acquire(shards->layout().head())).lmw;
    // Six letters, then their order: position 5 predicts the smallest letter.
    for (int b = 0; b < B; b++) {
        const int smallest = *std::min_element(tokens.begin() + b * T, tokens.begin() + b * T + 6);
        const float* x = gpt.acts.lnf + (b * T + 5) * 48;
        int best = 0;
        double best_logit = -1e30;
        for (int v = 0; v < 3; v++) {
            double logit = 0;
            for (int k = 0; k < 48; k++) logit += double(x[k]) * double(lmw[v * 48 + k]);
            if (logit > best_logit) best_logit = logit, best = v;
        }
        EXPECT_EQ(best, smallest);
    }
}
