// llmc/train/hf_test.cpp: tensors larger than the pieces in which they travel, written to a folder
// and read back: transposed ones, and rows in another order. Whole folders:
// scripts/test/hf_test.sh.
#include "llmc/train/hf.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "llmc/core/check.h"
#include "llmc/io/safetensors.h"
#include "llmc/model/parameters.h"

namespace fs = std::filesystem;

namespace {

struct Folder {
    std::string path = testing::TempDir() + "hf_" + std::to_string(getpid());
    Folder() { fs::remove_all(path); }
    ~Folder() { fs::remove_all(path); }
};

// Element i of each tensor; exact in fp32.
float value_of(const ParamTensor& t, int64_t i) {
    return float(i % 9999991) + float(t.name.size()) / 64;
}

// Layers with matrices of more than a piece's 2^20 elements, whose rows do not divide it.
ModelConfig wide_gpt2() {
    ModelConfig c;
    c.L = 1, c.H = c.KV = 3, c.C = 603, c.F = 2411, c.V = 50, c.Vp = vocab_padded(50), c.max_T = 8;
    return c;
}
ModelConfig wide_llama_in_pairs() {
    ModelConfig c = model_config("llama:tiny");
    c.L = 1, c.H = 3, c.KV = 1, c.C = 1041, c.F = 70, c.V = 50, c.Vp = vocab_padded(50);
    c.head_size = 346, c.max_T = 8, c.rope_pairs = RopePairs::Interleaved;
    return c;
}

class HfModels : public testing::TestWithParam<ModelConfig> {};
INSTANTIATE_TEST_SUITE_P(models, HfModels, testing::Values(wide_gpt2(), wide_llama_in_pairs()));

TEST_P(HfModels, each_element_travels_once_and_comes_back) {
    const ModelConfig cfg = GetParam();
    const ParamLayout layout = param_layout(cfg);
    const Folder dir;
    std::map<std::string, std::vector<int>> asked;
    for (const ParamBlock& b : layout.blocks)
        for (const ParamTensor& t : b.tensors) asked[t.name].resize(size_t(t.count()));
    const TensorSource source = [&](const ParamTensor& t, int64_t first, int64_t n, float* to) {
        ASSERT_LE(n, 1 << 20);
        for (int64_t i = 0; i < n; i++) {
            to[i] = value_of(t, first + i);
            asked.at(t.name).at(size_t(first + i))++;
        }
    };
    hf_model_write(dir.path, cfg, source, layout, nullptr, Dtype::F32);
    for (const auto& [name, times] : asked)
        EXPECT_EQ(std::count(times.begin(), times.end(), 1), int64_t(times.size())) << name;

    const TensorSource read = hf_model_source(dir.path, cfg, layout);
    std::vector<float> piece;
    for (const ParamBlock& b : layout.blocks)
        for (const ParamTensor& t : b.tensors)
            for (int64_t first = 0; first < t.count(); first += 100003) {
                piece.resize(size_t(std::min<int64_t>(100003, t.count() - first)));
                read(t, first, int64_t(piece.size()), piece.data());
                for (size_t i = 0; i < piece.size(); i++)
                    ASSERT_EQ(piece[i], value_of(t, first + int64_t(i)))
                        << t.name << " " << first << " + " << i;
            }
}

// Where single elements stand, by the format and not by our reader.
TEST(Hf, matrices_of_gpt2_are_transposed_and_pairs_become_halves) {
    for (const ModelConfig& cfg : {wide_gpt2(), wide_llama_in_pairs()}) {
        const bool gpt2 = cfg.positions == Positions::Learned;
        const ParamLayout layout = param_layout(cfg);
        const Folder dir;
        const TensorSource source = [](const ParamTensor& t, int64_t first, int64_t n, float* to) {
            for (int64_t i = 0; i < n; i++) to[i] = value_of(t, first + i);
        };
        hf_model_write(dir.path, cfg, source, layout, nullptr, Dtype::F32);
        const auto ours = [&](const std::string& name, int64_t row, int64_t column) {
            for (const ParamTensor& t : layout.blocks[1].tensors)
                if (t.name == name) return value_of(t, row * cfg.C + column);
            return -1.f;
        };
        const auto theirs = [&](const std::string& name, int64_t i) {
            float x = -2;
            SafeTensors(dir.path).read(name, i, 1, &x);
            return x;
        };
        if (gpt2) {
            const std::string fc = "transformer.h.0.mlp.c_fc.weight";
            EXPECT_EQ(theirs(fc, 5 * cfg.F + 7), ours(fc, 7, 5));
            EXPECT_EQ(theirs(fc, 602 * cfg.F + 2410), ours(fc, 2410, 602));
        } else {
            const std::string layer = "model.layers.0.self_attn.",
                              ours_all = layer + "qkv_proj.weight";
            const int half = cfg.HS() / 2;
            // Head 1's fourth pair: 3 and half + 3 there, 6 and 7 here.
            EXPECT_EQ(theirs(layer + "q_proj.weight", (cfg.HS() + 3) * cfg.C + 9),
                      ours(ours_all, cfg.HS() + 6, 9));
            EXPECT_EQ(theirs(layer + "q_proj.weight", (cfg.HS() + half + 3) * cfg.C + 9),
                      ours(ours_all, cfg.HS() + 7, 9));
            EXPECT_EQ(theirs(layer + "k_proj.weight", 3 * cfg.C), ours(ours_all, cfg.A() + 6, 0));
            EXPECT_EQ(theirs(layer + "v_proj.weight", 3 * cfg.C),
                      ours(ours_all, cfg.A() + cfg.HS() + 3, 0));
        }
    }
}

TEST(Hf, a_folder_that_could_not_be_written_is_empty) {
    const Folder dir;
    const ModelConfig cfg = wide_gpt2();
    const ParamLayout layout = param_layout(cfg);
    const TensorSource breaks = [&](const ParamTensor& t, int64_t, int64_t n, float* to) {
        CHECK(t.name.find("ln_2") == std::string::npos, Exit::Damaged, "broken");
        std::fill(to, to + n, 0.f);
    };
    EXPECT_THROW(hf_model_write(dir.path, cfg, breaks, layout, nullptr, Dtype::F32, 1 << 20),
                 Error);
    EXPECT_TRUE(fs::is_empty(dir.path));
}

}  // namespace
