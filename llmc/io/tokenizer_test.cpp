// llmc/io/tokenizer_test.cpp: bytes, characters, splitting; broken files refused.
#include "llmc/io/tokenizer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "llmc/core/check.h"
#include "llmc/io/tokenizer_bpe.h"

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

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
