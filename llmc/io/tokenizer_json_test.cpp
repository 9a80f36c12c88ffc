// llmc/io/tokenizer_json_test.cpp: the kinds of tokenizer.json against Hugging Face's library,
// whose ids dev/reference/tokenizers.py has written down; by hand, what a reader can check; what is
// refused, by name.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "llmc/core/check.h"
#include "llmc/io/tokenizer_bpe.h"

using nlohmann::json;

namespace {

const json& reference() {
    static const json all = json::parse(std::ifstream("dev/reference/tokenizers.json"));
    return all;
}

void expect_refused(const json& file, Exit code, const std::string& text) {
    try {
        tokenizer_from_json(file.dump(), "test.json");
        ADD_FAILURE() << "not refused; expected: " << text;
    } catch (const Error& e) {
        EXPECT_EQ(int(e.code), int(code)) << e.what();
        for (const std::string& part : {text, std::string("test.json")})
            EXPECT_NE(std::string(e.what()).find(part), std::string::npos)
                << "no '" << part << "' in: " << e.what();
    }
}

class ReferenceTokenizers : public testing::TestWithParam<const char*> {
  protected:
    void SetUp() override {
        file = reference().at(GetParam()).at("file");
        try {
            tokenizer = tokenizer_from_json(file.dump(), GetParam());
        } catch (const Error& e) {
            if (std::string(e.what()).find("utf8proc") == std::string::npos) throw;
            GTEST_SKIP() << e.what();
        }
    }
    json file;
    std::unique_ptr<Tokenizer> tokenizer;
};

}  // namespace

TEST_P(ReferenceTokenizers, ids_are_the_librarys) {
    const json& vectors = reference().at(GetParam()).at("vectors");
    ASSERT_GT(vectors.size(), 100u);
    for (const json& v : vectors) {
        const std::string text = v.at(0);
        const std::vector<int> ids = v.at(1), plain = v.at(2);
        EXPECT_EQ(tokenizer->encode(text, true), ids) << text;
        EXPECT_EQ(tokenizer->encode(text, false), plain) << text;
        // The library writes what is no UTF-8 as U+FFFD.
        const std::string decoded = v.at(3);
        if (decoded.find("\xef\xbf\xbd") != std::string::npos) continue;
        EXPECT_EQ(tokenizer->decode(plain), decoded) << text;
    }
}

// What lies inside a checkpoint or beside token files makes the same tokenizer, and is the file
// that other programs wrote.
TEST_P(ReferenceTokenizers, its_json_is_the_file) {
    EXPECT_EQ(json::parse(tokenizer->json()), file);
    const auto again = tokenizer_from_json(tokenizer->json(), "again");
    const auto clone = again->clone();
    for (const json& v : reference().at(GetParam()).at("vectors")) {
        EXPECT_EQ(again->encode(v.at(0).get<std::string>(), true), v.at(1).get<std::vector<int>>());
        EXPECT_EQ(clone->encode(v.at(0).get<std::string>()), v.at(2).get<std::vector<int>>());
    }
    EXPECT_EQ(again->eot(), tokenizer->eot());
}

TEST_P(ReferenceTokenizers, cutting_at_safe_places_changes_nothing) {
    size_t cuts = 0;
    for (const json& v : reference().at(GetParam()).at("vectors")) {
        const std::string text = v.at(0);
        for (size_t known = 0; known <= text.size(); known++) {
            const size_t cut = tokenizer->safe_cut(std::string_view(text).substr(0, known));
            std::vector<int> parts = tokenizer->encode(text.substr(0, cut));
            tokenizer->encode(text.substr(cut), false, parts);
            ASSERT_EQ(parts, tokenizer->encode(text)) << text << " cut at " << cut;
            cuts += cut > 0;
        }
    }
    // One that looks at whole texts has no safe place.
    EXPECT_EQ(cuts > 500, std::string(GetParam()).find("llama2") == std::string::npos);
}

// No text is illegal: broken bytes stay, what stands between them is encoded.
TEST_P(ReferenceTokenizers, broken_bytes_come_back) {
    for (const std::string text :
         {"\xff", "a\xc3", "\xe4\xb8 b", "word\xf0\x9f word", "\x80\xff\xfe"})
        EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
}

INSTANTIATE_TEST_SUITE_P(, ReferenceTokenizers,
                         testing::Values("llama3", "qwen2", "llama2", "llama2 legacy false"),
                         [](const auto& i) {
                             std::string name = i.param;
                             std::replace(name.begin(), name.end(), ' ', '_');
                             return name;
                         });

// ---- by hand
namespace {

// The byte tokenizer as LLaMA 3's kind: ids 0..255 are the bytes, then these tokens and merges.
json byte_file(const std::vector<std::string>& tokens, const std::vector<std::string>& merges) {
    json file = json::parse(tokenizer_open("byte")->json());
    file["model"]["vocab"].erase(kEndOfText);
    file["added_tokens"] = json::array();
    for (const std::string& token : tokens) {
        const size_t id = file["model"]["vocab"].size();
        file["model"]["vocab"][token] = id;
    }
    file["model"]["merges"] = merges;
    file["pre_tokenizer"] = {
        {"type", "Sequence"},
        {"pretokenizers",
         {{{"type", "Split"},
           {"pattern", {{"Regex", kLlama3Regex}}},
           {"behavior", "Isolated"},
           {"invert", false}},
          {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
    return file;
}

}  // namespace

TEST(tokenizer_json, a_whole_piece_goes_before_its_merges) {
    json file = byte_file({"ab", "bc", "abc"}, {"b c", "a b"});
    // By merges alone abc is a, bc: nothing makes 258 of them.
    EXPECT_EQ(tokenizer_from_json(file.dump(), "x")->encode("abc"), (std::vector<int>{'a', 257}));
    file["model"]["ignore_merges"] = true;
    const auto tokenizer = tokenizer_from_json(file.dump(), "x");
    EXPECT_EQ(tokenizer->encode("abc"), std::vector<int>{258});
    EXPECT_EQ(tokenizer->encode("abca"), (std::vector<int>{'a', 257, 'a'}));
}

TEST(tokenizer_json, digits_go_by_threes_and_contractions_in_any_case) {
    // Merges that would go on if a piece did.
    json file =
        byte_file({"12", "34", "1234", "'L", "'LL", "LL"}, {"1 2", "3 4", "12 34", "L L", "' LL"});
    const auto tokenizer = tokenizer_from_json(file.dump(), "x");
    EXPECT_EQ(tokenizer->encode("1234"), (std::vector<int>{256, '3', '4'}));
    EXPECT_EQ(tokenizer->encode("I'LL"), (std::vector<int>{'I', 260}));
    file["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = kQwen2Regex;
    EXPECT_EQ(tokenizer_from_json(file.dump(), "x")->encode("12"), (std::vector<int>{'1', '2'}));
}

// A sign takes the line breaks behind it along: no place to cut, which GPT-2's pattern has there.
TEST(tokenizer_json, no_cut_between_a_sign_and_a_line_break) {
    const std::string line_break = bytes_to_printable("\n");
    const json file = byte_file({"." + line_break}, {". " + line_break});
    const auto tokenizer = tokenizer_from_json(file.dump(), "x");
    EXPECT_EQ(tokenizer->encode(".\n"), std::vector<int>{256});
    EXPECT_EQ(tokenizer->safe_cut("a.\n"), 0u);
    EXPECT_EQ(tokenizer->safe_cut("a b.\nc"), 1u);
}

TEST(tokenizer_json, added_tokens_are_always_found_special_ones_if_asked_for) {
    json file = byte_file({}, {});
    file["model"]["merges"] = json::array();
    file["model"]["vocab"]["ab"] = 256;
    file["model"]["merges"] = {"a b"};
    file["added_tokens"] = {{{"id", 257}, {"content", "<s>"}, {"special", true}},
                            {{"id", 258}, {"content", "<think>"}, {"special", false}}};
    file["post_processor"] = {{"type", "TemplateProcessing"},
                              {"single",
                               {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
                                {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}}};
    const auto tokenizer = tokenizer_from_json(file.dump(), "x");
    EXPECT_EQ(tokenizer->encode("<think>ab<s>"), (std::vector<int>{258, 256, '<', 's', '>'}));
    EXPECT_EQ(tokenizer->encode("<think>ab<s>", true), (std::vector<int>{258, 256, 257}));
    EXPECT_EQ(tokenizer->eot(), 257);  // the template's
    EXPECT_TRUE(tokenizer->ends_text(257));
    EXPECT_FALSE(tokenizer->ends_text(258));
}

TEST(tokenizer_json, what_would_encode_differently_is_refused_by_name) {
    const json good = reference().at("llama3").at("file");
    const auto with = [&](const char* pointer, const json& value) {
        json file = good;
        file[json::json_pointer(pointer)] = value;
        return file;
    };
    tokenizer_from_json(good.dump(), "test.json");
    const char* split = "/pre_tokenizer/pretokenizers/0";
    const char* regex = "/pre_tokenizer/pretokenizers/0/pattern/Regex";
    expect_refused(with("/truncation", {{"max_length", 9}}), Exit::Usage, "truncation");
    expect_refused(with("/novelty", 1), Exit::Usage, "novelty 1");
    expect_refused(with("/model/novelty", 1), Exit::Usage, "model novelty 1");
    expect_refused(with("/normalizer", {{"type", "NFKC"}}), Exit::Usage, "NFKC");
    expect_refused(with("/normalizer", {{"type", "Lowercase"}}), Exit::Usage, "Lowercase");
    expect_refused(with(split, {{"type", "Digits"}, {"individual_digits", true}}), Exit::Usage,
                   "Digits");
    expect_refused(with("/pre_tokenizer/pretokenizers/0/behavior", "Removed"), Exit::Usage,
                   "Removed");
    expect_refused(with("/pre_tokenizer/pretokenizers/0/invert", true), Exit::Usage, "invert");
    expect_refused(with("/pre_tokenizer/pretokenizers/1/use_regex", true), Exit::Usage,
                   "use_regex");
    for (const char* bad : {"\\w+", "\\p{Han}", "(?<=a)b", "^a", "a{2}+", "[a[b]]", "[a&&b]", ".",
                            "[\\S]", "a{,2}", "[a", "\\", "(?<n>a)", "[]a]"})
        expect_refused(with(regex, bad), Exit::Usage, "pattern");
    expect_refused(with(regex, "(a"), Exit::Usage, "pattern");
    expect_refused(with("/added_tokens/0/lstrip", true), Exit::Usage, "lstrip");
    expect_refused(with("/added_tokens/0/single_word", true), Exit::Usage, "single_word");
    expect_refused(with("/post_processor", {{"type", "BertProcessing"}}), Exit::Usage,
                   "BertProcessing");
    expect_refused(with("/post_processor/processors/1/single/0/SpecialToken/id", "<x>"),
                   Exit::Usage, "<x>");
    expect_refused(with("/decoder", {{"type", "WordPiece"}}), Exit::Usage, "WordPiece");

    json old = reference().at("llama2").at("file");
    old["normalizer"]["normalizers"][0]["prepend"] = "_";
    expect_refused(old, Exit::Usage, "normalizer");
    old = reference().at("llama2").at("file");
    old["decoder"]["decoders"].erase(1);
    expect_refused(old, Exit::Usage, "decoder");
    old = reference().at("llama2").at("file");
    old["model"]["vocab"].erase("<0x0A>");
    expect_refused(old, Exit::Damaged, "no token");
    json fresh = reference().at("llama2 legacy false").at("file");
    fresh["pre_tokenizer"]["split"] = true;
    expect_refused(fresh, Exit::Usage, "split");
}

TEST(tokenizer_json, the_same_patterns_as_in_the_reference) {
    EXPECT_EQ(
        reference()["llama3"]["file"]["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"],
        kLlama3Regex);
    EXPECT_EQ(reference()["qwen2"]["file"]["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"],
              kQwen2Regex);
}

TEST(tokenizer_json, normal_form_c_composes) {
    std::string out = "x";
    try {
        nfc_check("here");
    } catch (const Error& e) {
        GTEST_SKIP() << e.what();
    }
    nfc_append(out,
               "e\xcc\x81\xff\xe1\x84\x80\xe1\x85\xa1 \xe2\x84\xab");  // e acute, Hangul, Angstrom
    EXPECT_EQ(out, "x\xc3\xa9\xff\xea\xb0\x80 \xc3\x85");
}

// What a pattern does not match, up to the next match, is a piece too.
TEST(tokenizer_json, what_no_pattern_matches_is_a_piece) {
    const Splitter splitter(pattern_from_regex("\\p{L}+|\\p{N}{2,}", "x"));
    std::vector<std::string> pieces;
    splitter.split("1ab22!? c3", [&](std::string_view p) { pieces.emplace_back(p); });
    EXPECT_EQ(pieces, (std::vector<std::string>{"1", "ab", "22", "!? ", "c", "3"}));
}
