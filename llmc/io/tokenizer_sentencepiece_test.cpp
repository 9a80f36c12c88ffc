// llmc/io/tokenizer_sentencepiece_test.cpp: the library's ids through our interface, files of both
// kinds, broken files.
#include "llmc/io/tokenizer_sentencepiece.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "llmc/core/check.h"

namespace {
std::string data_file(const std::string& name) {
    const char* root = std::getenv("TEST_DATA");
    std::ifstream in(std::string(root ? root : "data/test") + "/" + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}
std::string text_of(const std::function<void()>& run) {
    try {
        run();
    } catch (const Error& e) {
        return e.what();
    }
    return "";
}
}  // namespace

#ifdef LLMC_SENTENCEPIECE
TEST(sentencepiece, all_vectors_are_exact_and_come_back) {
    const std::string model = data_file("llama_tokenizer/mistral_v1.model");
    if (model.empty()) GTEST_SKIP() << "no llama_tokenizer: set TEST_DATA";
    const auto tokenizer = sentencepiece_tokenizer(model, "mistral_v1.model");
    EXPECT_EQ(tokenizer->vocab_size(), 32000);
    EXPECT_EQ(tokenizer->eot(), 1);
    const auto again = tokenizer_from_json(tokenizer->json(), "json");
    std::istringstream lines(data_file("llama_tokenizer/vectors.jsonl"));
    int count = 0;
    for (std::string line; std::getline(lines, line); count++) {
        const auto v = nlohmann::json::parse(line);
        const std::string text = v.at("text");
        const std::vector<int> ids = v.at("ids");
        EXPECT_EQ(tokenizer->encode(text), ids) << text;
        EXPECT_EQ(again->encode(text), ids) << text;
        EXPECT_EQ(tokenizer->decode(ids), text);
    }
    EXPECT_EQ(count, 695);
}

// A byte, a merge, a space and a text without spaces, by hand: ids are 3 + byte for bytes.
TEST(sentencepiece, llama2c_files_become_the_same_pieces) {
    const std::string file = data_file("stories260K/tok512.bin");
    if (file.empty()) GTEST_SKIP() << "no stories260K: set TEST_DATA";
    ASSERT_TRUE(llama2c_tokenizer_is(file));
    const auto tokenizer =
        sentencepiece_tokenizer(llama2c_tokenizer_model(file, "tok512"), "tok512");
    EXPECT_EQ(tokenizer->vocab_size(), 512);
    const std::vector<int> known = {403, 407, 261, 378};  // how the model begins its stories
    EXPECT_EQ(tokenizer->decode(known), "Once upon a time");
    EXPECT_EQ(tokenizer->encode("Once upon a time"), known);
    EXPECT_EQ(tokenizer->encode("<s>", true), std::vector<int>{1});
    EXPECT_NE(tokenizer->encode("<s>", false), std::vector<int>{1});
    const std::string odd = "\xc3\xa9\x01 x";  // characters without pieces are spelt in bytes
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(odd)), odd);
}

TEST(sentencepiece, broken_models_are_refused) {
    EXPECT_NE(text_of([] { sentencepiece_tokenizer("not a model", "x.model"); }).find("x.model"),
              std::string::npos);
    const std::string model = data_file("llama_tokenizer/mistral_v1.model");
    if (model.empty()) GTEST_SKIP() << "no llama_tokenizer: set TEST_DATA";
    EXPECT_NE(text_of([&] { sentencepiece_tokenizer(model.substr(0, 9999), "y"); }), "");
}
#endif

TEST(sentencepiece, base64_comes_back) {
    std::string bytes;
    for (int n = 0; n < 70; n++) {
        EXPECT_EQ(base64_decode(base64_encode(bytes), "here"), bytes);
        bytes += char(n * 37);
    }
    EXPECT_EQ(base64_encode("Man"), "TWFu");
    EXPECT_EQ(base64_encode("Ma"), "TWE=");
    EXPECT_NE(text_of([] { base64_decode("TW!u", "here"); }).find("here"), std::string::npos);
}

TEST(sentencepiece, a_cut_llama2c_file_is_refused) {
    const std::string head("\x07\0\0\0\0\0\0\0\x05\0\0\0<unk>", 17);
    EXPECT_TRUE(llama2c_tokenizer_is(head));
    EXPECT_FALSE(llama2c_tokenizer_is("{\"version\": \"1.0\"}"));
    EXPECT_NE(text_of([&] { llama2c_tokenizer_model(head, "z"); }).find("z"), std::string::npos);
    EXPECT_NE(text_of([&] { llama2c_tokenizer_model(head + "abc", "z"); }).find("offset 17"),
              std::string::npos);
}
