// llmc/io/tokenizer_gpt2_test.cpp: GPT-2's ids exactly, every byte back.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include <nlohmann/json.hpp>

#include "llmc/io/tokenizer.h"
#include "llmc/io/tokenizer_bpe.h"

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

std::string read_all(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

fs::path test_data() {
    const char* dir = std::getenv("TEST_DATA");
    return dir ? dir : "data/test";
}

std::string from_hex(const std::string& hex) {
    std::string bytes;
    for (size_t i = 0; i + 1 < hex.size(); i += 2)
        bytes += char(std::stoi(hex.substr(i, 2), nullptr, 16));
    return bytes;
}

// The ids as little-endian uint16, as SHA-256 by coreutils.
std::string sha256_of_u16(const std::vector<int>& ids, const fs::path& scratch) {
    std::ofstream out(scratch, std::ios::binary);
    for (const int id : ids) out.put(char(id & 255)).put(char(id >> 8));
    out.close();
    FILE* pipe = popen(("sha256sum " + scratch.string()).c_str(), "r");
    char hex[65] = {};
    EXPECT_EQ(std::fread(hex, 1, 64, pipe), 64u);
    pclose(pipe);
    fs::remove(scratch);
    return hex;
}

// Characters that the splitting rules tell apart, of every length in UTF-8, and broken bytes.
std::string random_text(std::mt19937& random, int parts) {
    static const std::vector<std::string> alphabet = {"a",
                                                      "Z",
                                                      "the",
                                                      "word",
                                                      "s",
                                                      "t",
                                                      "re",
                                                      "ll",
                                                      "'",
                                                      "'s",
                                                      "'ve",
                                                      "1",
                                                      "2024",
                                                      " ",
                                                      " ",
                                                      " ",
                                                      "  ",
                                                      "\n",
                                                      "\n\n",
                                                      "\t",
                                                      "\r\n",
                                                      ".",
                                                      ",",
                                                      "?!",
                                                      "-",
                                                      "\"",
                                                      "\xc3\xa9",
                                                      "\xc2\xa0",
                                                      "\xc2\x85",
                                                      "\xe3\x80\x80",
                                                      "\xe2\x80\xa8",
                                                      "\xe1\xa0\x8e",
                                                      "\xef\xbb\xbf",
                                                      "\xe4\xb8\xad",
                                                      "\xd9\xa3",
                                                      "\xc2\xbd",
                                                      "\xe2\x82\xac",
                                                      "\xf0\x9f\x98\x80",
                                                      "\xf0\x9d\x9f\x98",
                                                      "\xcc\x81",
                                                      "\xff",
                                                      "\xc3",
                                                      "\xe4\xb8",
                                                      "\xf0\x9f",
                                                      "\xed\xa0\x80",
                                                      "\xc0\x80",
                                                      std::string(1, '\0'),
                                                      "<|endoftext|>"};
    std::string text;
    for (int i = 0; i < parts; i++) text += alphabet[random() % alphabet.size()];
    return text;
}

std::string random_bytes(std::mt19937& random, int n) {
    std::string bytes;
    for (int i = 0; i < n; i++) bytes += char(random());
    return bytes;
}

class Gpt2Tokenizer : public ::testing::Test {
  protected:
    void SetUp() override {
        const fs::path dir = test_data() / "gpt2_bpe";
        if (!fs::exists(dir / "vocab.bpe"))
            GTEST_SKIP() << "no " << dir << ": set TEST_DATA or run data/fetch_test_data.sh";
        static const std::unique_ptr<Tokenizer> opened = tokenizer_open(dir.string());
        tokenizer = opened->clone();
    }
    std::unique_ptr<Tokenizer> tokenizer;
};

TEST_F(Gpt2Tokenizer, all_vectors_are_exact) {
    std::ifstream lines(test_data() / "gpt2_bpe" / "vectors.jsonl");
    int count = 0;
    for (std::string line; std::getline(lines, line); count++) {
        const json vector = json::parse(line);
        const std::string text = from_hex(vector["hex"]);
        const std::vector<int> ids = vector["ids"];
        EXPECT_EQ(tokenizer->encode(text), ids) << line;
        EXPECT_EQ(tokenizer->decode(ids), text) << line;
    }
    EXPECT_EQ(count, 695);
}

TEST_F(Gpt2Tokenizer, ids_cut_inside_a_character_give_its_bytes) {
    std::ifstream lines(test_data() / "gpt2_bpe" / "decode_partial.jsonl");
    int count = 0;
    for (std::string line; std::getline(lines, line); count++) {
        const json vector = json::parse(line);
        EXPECT_EQ(tokenizer->decode(vector["ids"]), from_hex(vector["hex"])) << line;
    }
    EXPECT_EQ(count, 117);
}

TEST_F(Gpt2Tokenizer, whole_books_give_the_known_ids) {
    struct Book {
        fs::path file;
        size_t tokens;
        const char* sha256;
    };
    const fs::path scratch = fs::path(testing::TempDir()) / "tokenizer_test_ids.bin";
    for (const Book& book :
         {Book{test_data() / "tinyshakespeare.txt", 338025,
               "25c01b32b32f41897a6359dd222ec114992dc30c357bcafbfe6c56672f76cd31"},
          Book{"data/corpora/austen.txt", 993328,
               "7df7cfa9c3002e0b3e0a634a9f11ba1116778e79aab4bb218856957c4f0d6423"}}) {
        if (!fs::exists(book.file))
            continue;  // the second is there after data/fetch_corpus.sh austen
        const std::vector<int> ids = tokenizer->encode(read_all(book.file));
        EXPECT_EQ(ids.size(), book.tokens) << book.file;
        EXPECT_EQ(sha256_of_u16(ids, scratch), book.sha256) << book.file;
    }
}

TEST_F(Gpt2Tokenizer, end_of_text_is_one_id_only_when_asked_for) {
    EXPECT_EQ(tokenizer->name(), "gpt2");
    EXPECT_EQ(tokenizer->vocab_size(), 50257);
    EXPECT_EQ(tokenizer->eot(), 50256);
    EXPECT_EQ(tokenizer->encode("<|endoftext|>", true), std::vector<int>{50256});
    EXPECT_EQ(tokenizer->encode("a<|endoftext|><|endoftext|> b", true),
              (std::vector<int>{64, 50256, 50256, 275}));
    EXPECT_EQ(tokenizer->encode("<|endoftext|>").size(), 7u);
    EXPECT_EQ(tokenizer->encode("<|endoftext", true).size(), 5u);
    EXPECT_EQ(tokenizer->decode({50256}), kEndOfText);
}

TEST_F(Gpt2Tokenizer, stories_between_end_of_text_lines) {
    // 509,140 is tiktoken's count with the separator as a special token.
    const std::string text = read_all(test_data() / "tinystories_2MiB.txt");
    if (text.empty()) GTEST_SKIP() << "no tinystories_2MiB.txt";
    EXPECT_EQ(tokenizer->encode(text, true).size(), 509140u);
}

TEST_F(Gpt2Tokenizer, any_bytes_come_back) {
    std::mt19937 random(1);
    for (int i = 0; i < 3000; i++) {
        const std::string text = i % 2 ? random_text(random, int(random() % 40))
                                       : random_bytes(random, int(random() % 60));
        for (const bool special : {false, true})
            ASSERT_EQ(tokenizer->decode(tokenizer->encode(text, special)), text) << "case " << i;
    }
    // A broken byte is itself, and what stands around it is encoded as if it stood alone.
    std::vector<int> expected = tokenizer->encode("two words  ");
    for (const int id : tokenizer->encode("\xc3")) expected.push_back(id);
    for (const int id : tokenizer->encode(" and more")) expected.push_back(id);
    EXPECT_EQ(tokenizer->encode("two words  \xc3 and more"), expected);
}

TEST_F(Gpt2Tokenizer, cutting_at_safe_places_changes_nothing) {
    std::mt19937 random(2);
    size_t cuts = 0;
    for (int i = 0; i < 3000; i++) {
        const std::string text = random_text(random, 30);
        const size_t known =
            text.size() * (random() % 100) / 100;  // only this much was read so far
        const size_t cut = tokenizer->safe_cut(std::string_view(text).substr(0, known));
        ASSERT_LE(cut, known);
        std::vector<int> parts = tokenizer->encode(text.substr(0, cut));
        tokenizer->encode(text.substr(cut), false, parts);
        ASSERT_EQ(parts, tokenizer->encode(text)) << "case " << i;
        cuts += cut > 0;
    }
    EXPECT_GT(cuts, 2000u);  // the test did cut
}

TEST_F(Gpt2Tokenizer, one_endless_word_takes_no_quadratic_time) {
    const auto start = std::chrono::steady_clock::now();
    for (const char* unit : {"a", " ", "\n", "9", "!", "\xff", "\xe4\xb8\xad", "ab", "'s"}) {
        std::string text;
        while (text.size() < 1000000) text += unit;
        text += "x";
        EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text) << unit;
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    EXPECT_LT(seconds.count(), 60);  // 5 s here; quadratic would be hours
}

TEST_F(Gpt2Tokenizer, json_makes_an_equal_tokenizer) {
    const std::string text = tokenizer->json();
    const auto again = tokenizer_from_json(text, "json()");
    EXPECT_EQ(again->json(), text);
    EXPECT_EQ(again->name(), "gpt2");
    EXPECT_EQ(again->eot(), 50256);
    const auto clone = again->clone();
    std::mt19937 random(3);
    for (int i = 0; i < 500; i++) {
        const std::string sample = random_text(random, 30);
        ASSERT_EQ(again->encode(sample), tokenizer->encode(sample));
        ASSERT_EQ(clone->encode(sample, true), tokenizer->encode(sample, true));
    }
    // Merges as pairs, which newer files have, mean the same.
    json pairs = json::parse(text);
    for (json& merge : pairs["model"]["merges"]) {
        const std::string line = merge;
        merge = {line.substr(0, line.find(' ')), line.substr(line.find(' ') + 1)};
    }
    EXPECT_EQ(tokenizer_from_json(pairs.dump(), "pairs")->json(), text);
}

}  // namespace
