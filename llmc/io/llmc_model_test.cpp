// llm.c's model files: byte for byte there and back, and damaged ones refused.
#include "llmc/io/llmc_model.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "llmc/core/check.h"
#include "llmc/core/rng.h"
#include "llmc/model/parameters.h"

namespace {
constexpr int L = 2, H = 3, C = 12, T = 5, V = 130, Vp = 256;

ParamLayout tiny_layout() {
    ModelConfig c;
    c.L = L, c.H = c.KV = H, c.C = C, c.F = 4 * C, c.V = V, c.Vp = Vp, c.max_T = T;
    return param_layout(c);
}

// An independent writer, straight from the format's description.
std::string file_bytes(int version) {
    std::string out;
    std::vector<int32_t> header(256, 0);
    const int32_t words[] = {20240326, version, T, V, L, H, C, Vp};
    std::copy(std::begin(words), std::end(words), header.begin());
    out.append(reinterpret_cast<const char*>(header.data()), 1024);
    uint64_t index = 0;
    auto tensor = [&](int n, bool zero = false) {
        for (int i = 0; i < n; i++, index++) {
            float x = zero ? 0.f : random_uniform(9, 9, index) - 0.5f;
            uint32_t u;
            std::memcpy(&u, &x, 4);
            if (version == 5) u >>= 16;
            out.append(reinterpret_cast<const char*>(&u), version == 5 ? 2 : 4);
        }
    };
    tensor(V * C), tensor((Vp - V) * C, true), tensor(T * C);
    for (int n : {C, C, 3 * C * C, 3 * C, C * C, C, C, C, 4 * C * C, 4 * C, 4 * C * C, C})
        tensor(L * n);
    tensor(C), tensor(C);
    return out;
}

struct TempFile {
    std::string path = testing::TempDir() + "llmc_model_" + std::to_string(getpid()) + ".bin";
    explicit TempFile(const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }
    ~TempFile() { std::filesystem::remove(path); }
};

std::string slurp(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}
}  // namespace

TEST(llmc_model, both_versions_come_back_byte_for_byte) {
    const ParamLayout layout = tiny_layout();
    for (int version : {3, 5}) {
        const std::string bytes = file_bytes(version);
        TempFile in(bytes);
        const LlmcModelHeader h = llmc_model_header(in.path);
        EXPECT_EQ(h.dtype, version == 3 ? Dtype::F32 : Dtype::BF16);
        EXPECT_EQ(h.L, L);
        EXPECT_EQ(h.V, V);
        const TensorSource source = llmc_model_source(in.path, layout);
        llmc_model_write(in.path + ".out", source, layout, h);
        EXPECT_EQ(slurp(in.path + ".out"), bytes);
        std::filesystem::remove(in.path + ".out");
    }
}

TEST(llmc_model, tensors_land_where_they_belong) {
    const ParamLayout layout = tiny_layout();
    TempFile in(file_bytes(3));
    const TensorSource source = llmc_model_source(in.path, layout);
    // Element 7 of layer 1's qkv bias, counted from the format's description.
    uint64_t at = uint64_t(Vp) * C + T * C + 2 * L * C + L * 3 * C * C + 1 * 3 * C + 7;
    const ParamBlock& layer1 = layout.blocks[2];
    EXPECT_EQ(layer1.tensors[3].name, "transformer.h.1.attn.c_attn.bias");
    float found[3];
    source(layer1.tensors[3], 7, 3, found);
    for (int i = 0; i < 3; i++) EXPECT_EQ(found[i], random_uniform(9, 9, at + i) - 0.5f);
}

TEST(llmc_model, damaged_files_are_refused) {
    const std::string good = file_bytes(3);
    auto refusal = [](const std::string& bytes) {
        TempFile f(bytes);
        try {
            llmc_model_header(f.path);
        } catch (const Error& e) {
            EXPECT_EQ(e.code, Exit::Damaged);
            return std::string(e.what());
        }
        return std::string();
    };
    auto with_word = [&](int word, int32_t value) {
        std::string bad = good;
        std::memcpy(bad.data() + 4 * word, &value, 4);
        return refusal(bad);
    };
    EXPECT_EQ(refusal(good), "");
    EXPECT_NE(refusal("").find("0 bytes"), std::string::npos);
    EXPECT_NE(refusal(good.substr(0, 1000)).find("1000 bytes"), std::string::npos);
    EXPECT_NE(refusal(good.substr(0, good.size() - 4)).find("wrong size"), std::string::npos);
    EXPECT_NE(refusal(good + "x").find("wrong size"), std::string::npos);
    EXPECT_NE(with_word(0, 20240520).find("magic 20240520"), std::string::npos);
    EXPECT_NE(with_word(1, 4).find("unknown version"), std::string::npos);
    EXPECT_NE(with_word(4, -2).find("num_layers"), std::string::npos);
    EXPECT_NE(with_word(6, 1 << 30).find("channels"), std::string::npos);
    EXPECT_NE(with_word(5, 5).find("impossible"), std::string::npos);
    for (int word : {2, 3, 4, 6, 7}) EXPECT_NE(with_word(word, 1 << 24), "");
    EXPECT_THROW(llmc_model_header("/nonexistent.bin"), Error);

    std::string bad = good;
    bad[size_t(1024 + 4 * (V * C + 3) + 3)] = 0x3f;  // a padding row that is not zero
    TempFile f(bad);
    EXPECT_THROW(llmc_model_source(f.path, tiny_layout()), Error);
}
