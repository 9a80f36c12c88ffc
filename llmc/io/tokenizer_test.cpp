// llmc/io/tokenizer_test.cpp: GPT-2's ids exactly, every byte back, broken files refused.
#include "llmc/io/tokenizer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include <nlohmann/json.hpp>

#include "llmc/core/check.h"
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

// Opening must fail with this code and with the text in its message.
template <class Open>
void expect_refused(Open open, Exit code, const std::string& text) {
    try {
        open();
        ADD_FAILURE() << "not refused; expected: " << text;
    } catch (const Error& e) {
        EXPECT_EQ(int(e.code), int(code)) << e.what();
        EXPECT_NE(std::string(e.what()).find(text), std::string::npos)
            << "no '" << text << "' in: " << e.what();
    }
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

TEST(ByteTokenizer, is_the_bytes_and_end_of_text) {
    const auto tokenizer = tokenizer_open("byte");
    EXPECT_EQ(tokenizer->name(), "byte");
    EXPECT_EQ(tokenizer->vocab_size(), 257);
    EXPECT_EQ(tokenizer->eot(), 256);
    EXPECT_EQ(tokenizer->encode("A\xff<|endoftext|>", true), (std::vector<int>{65, 255, 256}));
    std::string all;
    for (int b = 0; b < 256; b++) all += char(b);
    const std::vector<int> ids = tokenizer->encode(all);
    for (int b = 0; b < 256; b++) EXPECT_EQ(ids[size_t(b)], b);
    EXPECT_EQ(tokenizer->decode(ids), all);
    EXPECT_EQ(tokenizer_from_json(tokenizer->json(), "json()")->json(), tokenizer->json());
    EXPECT_EQ(tokenizer_from_json(tokenizer->json(), "json()")->name(), "byte");
    expect_refused([&] { tokenizer->decode({257}); }, Exit::Usage, "id 257");
    expect_refused([&] { tokenizer->decode({-1}); }, Exit::Usage, "id -1");
}

TEST(ByteLevel, printable_characters_stand_for_bytes) {
    std::string all, back;
    for (int b = 0; b < 256; b++) all += char(b);
    EXPECT_EQ(bytes_to_printable("a b\n"),
              "a\xc4\xa0"
              "b\xc4\x8a");  // aĠbĊ, as in GPT-2's files
    EXPECT_TRUE(printable_to_bytes(bytes_to_printable(all), back));
    EXPECT_EQ(back, all);
    EXPECT_FALSE(printable_to_bytes("a b", back));
    EXPECT_FALSE(printable_to_bytes("\xe4\xb8\xad", back));
    EXPECT_FALSE(printable_to_bytes("\xc4", back));
}

TEST(Utf8, valid_prefix_ends_at_the_first_broken_byte) {
    // Unicode 15, table 3-7: the borders of each row, inside and outside.
    for (const char* good :
         {"", "a\x7f", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
          "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"})
        EXPECT_EQ(utf8_valid_prefix(good), std::string(good).size()) << good;
    for (const char* bad :
         {"\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xc2", "\xc2\x7f", "\xc2\xc0", "\xe0\x9f\xbf",
          "\xed\xa0\x80", "\xe4\xb8", "\xe4\xb8\x7f", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80",
          "\xf5\x80\x80\x80", "\xf0\x9f\x98", "\xff"})
        EXPECT_EQ(utf8_valid_prefix(std::string("ab") + bad), 2u) << bad;
}

std::string utf8(char32_t c) {
    if (c < 0x80) return {char(c)};
    if (c < 0x800) return {char(0xc0 | c >> 6), char(0x80 | (c & 63))};
    if (c < 0x10000)
        return {char(0xe0 | c >> 12), char(0x80 | (c >> 6 & 63)), char(0x80 | (c & 63))};
    return {char(0xf0 | c >> 18), char(0x80 | (c >> 12 & 63)), char(0x80 | (c >> 6 & 63)),
            char(0x80 | (c & 63))};
}

TEST(SplitterTest, white_space_is_unicodes_white_space) {
    const auto is_white_space = [](char32_t c) {  // Unicode 15, PropList.txt
        return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
               (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
               c == 0x205f || c == 0x3000;
    };
    const Splitter splitter(kGpt2Pattern);
    for (char32_t c = 0; c < 0x110000; c++) {
        if (c >= 0xd800 && c < 0xe000) continue;  // surrogates have no UTF-8
        // Of two of them before a word the last stands alone, which happens to nothing else; only
        // the space itself goes with the word.
        int pieces = 0;
        splitter.split(utf8(c) + utf8(c) + "x", [&](std::string_view) { pieces++; });
        ASSERT_EQ(pieces == 3 || c == ' ', is_white_space(c)) << "U+" << std::hex << uint32_t(c);
        const size_t cut = gpt2_safe_cut(utf8(c) + " ");
        ASSERT_TRUE(cut == 0 || !is_white_space(c)) << "U+" << std::hex << uint32_t(c);
    }
}

class TokenizerFiles : public ::testing::Test {
  protected:
    void SetUp() override {
        dir = fs::path(testing::TempDir()) / "tokenizer_files";
        fs::remove_all(dir);
        fs::create_directories(dir);
        file = json::parse(tokenizer_open("byte")->json());
    }
    void TearDown() override { fs::remove_all(dir); }

    void refused(Exit code, const std::string& text) const {
        expect_refused([&] { tokenizer_from_json(file.dump(), "test.json"); }, code, text);
        expect_refused([&] { tokenizer_from_json(file.dump(), "test.json"); }, code, "test.json");
    }
    fs::path dir;
    json file;  // the byte tokenizer, to be spoiled
};

TEST_F(TokenizerFiles, merges_go_by_rank_and_not_by_place) {
    file["model"]["vocab"].update({{"bc", 257}, {"ab", 258}, {"abc", 259}});
    file["model"]["merges"] = {"b c", "a b", "a bc"};
    const auto tokenizer = tokenizer_from_json(file.dump(), "test.json");
    EXPECT_EQ(tokenizer->encode("abc"), std::vector<int>{259});
    EXPECT_EQ(tokenizer->encode("abab"), (std::vector<int>{258, 258}));
    EXPECT_EQ(tokenizer->encode("a bc"), (std::vector<int>{'a', ' ', 257}));
    EXPECT_EQ(tokenizer->name(), "bpe-260");
}

TEST_F(TokenizerFiles, what_would_encode_differently_is_refused_by_name) {
    const json good = file;
    const auto with = [&](const char* pointer, const json& value) {
        file = good;
        file[json::json_pointer(pointer)] = value;
    };
    with("/normalizer", {{"type", "NFD"}});
    refused(Exit::Usage, "normalizer {\"type\":\"NFD\"}");
    with("/pre_tokenizer", nullptr);
    refused(Exit::Usage, "pre_tokenizer null");
    with("/pre_tokenizer/type", "Whitespace");
    refused(Exit::Usage, "Whitespace");
    with("/pre_tokenizer/add_prefix_space", true);
    refused(Exit::Usage, "add_prefix_space");
    with("/pre_tokenizer/use_regex", false);
    refused(Exit::Usage, "use_regex");
    with("/model/type", "Unigram");
    refused(Exit::Usage, "Unigram");
    with("/model/dropout", 0.1);
    refused(Exit::Usage, "dropout 0.1");
    with("/model/byte_fallback", true);
    refused(Exit::Usage, "pre_tokenizer {");
    with("/model/end_of_word_suffix", "</w>");
    refused(Exit::Usage, "end_of_word_suffix \"</w>\"");
    with("/model/continuing_subword_prefix", "");  // harmless
    tokenizer_from_json(file.dump(), "test.json");
}

TEST_F(TokenizerFiles, broken_content_is_refused) {
    const json good = file;
    const auto with = [&](const char* pointer, const json& value) {
        file = good;
        file[json::json_pointer(pointer)] = value;
    };
    with("/model/vocab/A", 300);
    refused(Exit::Damaged, "no token 65");
    with("/model/vocab/A", 66);
    refused(Exit::Damaged, "two tokens with one id");
    with("/model/vocab/A", -1);
    refused(Exit::Damaged, "'A' with id -1");
    with("/model/vocab/A", 2e9);
    refused(Exit::Damaged, "'A' with id");
    with("/model/vocab/A", 4000000000000);
    refused(Exit::Damaged, "'A' with id 4000000000000");
    with("/model/vocab/A", "x");
    refused(Exit::Damaged, "'A' with id \"x\"");
    with("/model/merges", {"a b"});
    refused(Exit::Damaged, "'ab'");
    with("/model/merges", {"ab"});
    refused(Exit::Damaged, "'ab'");
    with("/model/merges", {{"a"}});
    refused(Exit::Damaged, "not a tokenizer");
    with("/model/merges", {7});
    refused(Exit::Damaged, "not a tokenizer");
    with("/model/vocab", nullptr);
    refused(Exit::Damaged, "no token 0");
    with("/added_tokens", {{{"id", 65}, {"content", "<x>"}}});
    refused(Exit::Damaged, "'<x>' as another token 65");
    with("/added_tokens", {{{"id", 257}, {"content", ""}}});
    refused(Exit::Damaged, "a bad token");
    file = good;
    file["model"]["vocab"].erase("A");
    file["model"]["vocab"]["AA"] = 65;
    refused(Exit::Damaged, "no token for byte 65");
    for (const char* text :
         {"", "{", "[]", "{}", "7", "null", "{\"model\": []}", "<!DOCTYPE html>"})
        expect_refused([&] { tokenizer_from_json(text, "test.json"); }, Exit::Damaged, "test.json");
}

TEST_F(TokenizerFiles, specs_name_files_and_folders) {
    expect_refused([&] { tokenizer_open((dir / "none").string()); }, Exit::Usage,
                   "no such tokenizer");
    expect_refused([&] { tokenizer_open("bytes"); }, Exit::Usage, "expected byte");
    expect_refused([&] { tokenizer_open(dir.string()); }, Exit::Usage,
                   "no tokenizer in the folder");

    std::ofstream(dir / "vocab.bpe") << "#version: 0.2\na b\n# #\n";
    expect_refused([&] { tokenizer_open((dir / "vocab.bpe").string()); }, Exit::Usage,
                   "encoder.json");
    json vocab = file["model"]["vocab"];
    vocab.update({{"ab", 257}, {"##", 258}});
    std::ofstream(dir / "encoder.json") << vocab;
    for (const fs::path& spec : {dir, dir / "vocab.bpe", dir / "encoder.json"}) {
        const auto tokenizer = tokenizer_open(spec.string());
        EXPECT_EQ(tokenizer->encode("ab##<|endoftext|>", true), (std::vector<int>{257, 258, 256}));
    }
    std::ofstream(dir / "tokenizer.json") << file;
    EXPECT_EQ(tokenizer_open(dir.string())->vocab_size(), 257);
    EXPECT_EQ(tokenizer_open((dir / "tokenizer.json").string())->vocab_size(), 257);
    std::ofstream(dir / "empty.json").close();
    expect_refused([&] { tokenizer_open((dir / "empty.json").string()); }, Exit::Damaged,
                   "empty.json");

    // A folder whose tokenizer.json is refused: encoder.json does not say how text is split.
    file["normalizer"] = {{"type", "Lowercase"}};
    std::ofstream(dir / "tokenizer.json") << file;
    expect_refused([&] { tokenizer_open(dir.string()); }, Exit::Usage, "normalizer");
    fs::remove(dir / "tokenizer.json"), fs::remove(dir / "encoder.json");
    EXPECT_EQ(tokenizer_in_folder(dir.string()), nullptr);
    EXPECT_EQ(tokenizer_in_folder((dir / "none").string()), nullptr);
}

TEST_F(TokenizerFiles, llmc_files_decode) {
    const std::string path = (dir / "gpt2_tokenizer.bin").string();
    const auto write = [&](std::vector<uint32_t> head, const std::string& body) {
        head.resize(256);
        std::ofstream out(path, std::ios::binary);
        out.write(reinterpret_cast<const char*>(head.data()), 1024) << body;
    };
    const std::string body(
        "\x01"
        "a"
        "\x03"
        "b\0c"
        "\x02"
        "\xc3\xa9",
        9);
    write({20240328, 2, 3, 1}, body);
    const auto tokenizer = tokenizer_open(path);
    EXPECT_EQ(tokenizer->vocab_size(), 3);
    EXPECT_EQ(tokenizer->eot(), 1);
    EXPECT_EQ(tokenizer->decode({2, 0, 1}), std::string("\xc3\xa9"
                                                        "ab\0c",
                                                        6));
    expect_refused([&] { tokenizer->encode("a"); }, Exit::Usage, "can only decode");
    expect_refused([&] { tokenizer->json(); }, Exit::Usage, "can only decode");

    const auto refused = [&](const std::string& text) {
        expect_refused([&] { tokenizer_open(path); }, Exit::Damaged, text);
    };
    write({20240328, 2, 4, 1}, body);
    refused("no bytes for token 3 at byte offset 1033");
    write({20240328, 2, 0xffffffff, 1}, body);
    refused("4294967295 tokens");
    write({20240328, 2, 3, 1}, body.substr(0, 8));
    refused("token 2 at byte offset 1030");
    write({20240328, 2, 2, 1}, body);
    refused("3 bytes behind the last token");
    write({20240328, 2, 3, 3}, body);
    refused("end-of-text id 3");
    write({20240328, 3, 3, 1}, body);
    refused("version 3");
    fs::resize_file(path, 1000);
    refused("1000 bytes");
}

}  // namespace
