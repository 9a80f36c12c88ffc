// llmc/io/llmc_eval_test.cpp: llm.c's HellaSwag file, written here by hand from its description.
#include "llmc/io/llmc_eval.h"

#include <gtest/gtest.h>

#include <cstring>

#include "llmc/core/check.h"

namespace {

void words_add(std::string& file, const std::vector<int>& words) {
    for (int w : words) file += {char(w & 255), char(w >> 8)};
}

std::string header(std::vector<int32_t> words) {
    words.resize(256);
    return {reinterpret_cast<const char*>(words.data()), 1024};
}

// Two questions; 18 words, and 20 with ids up to 50256.
std::string good() {
    std::string file = header({20240522, 1, 2, 40});
    words_add(file, {65535, 36, 0, 3, 4, 2, 10, 11, 1, 20, 1, 21, 1, 22, 1, 23, 0, 0});
    file.resize(file.size() - 4);
    file[1024 + 2] = 32;
    words_add(file, {65535, 40, 1, 0, 4, 1, 50256, 2, 30, 31, 1, 32, 3, 33, 34, 35, 2, 36, 37});
    file[1024 + 32 + 2] = 38;
    return file;
}

TEST(LlmcEval, questions_are_as_written) {
    EXPECT_TRUE(is_llmc_eval(good()));
    EXPECT_FALSE(is_llmc_eval("{\"ctx\""));
    EXPECT_FALSE(is_llmc_eval(""));
    const auto q = llmc_eval_parse(good(), "f");
    ASSERT_EQ(q.size(), 2u);
    EXPECT_EQ(q[0].label, 3);
    EXPECT_EQ(q[0].context, (std::vector<int>{10, 11}));
    EXPECT_EQ(q[0].choices, (std::vector<std::vector<int>>{{20}, {21}, {22}, {23}}));
    EXPECT_EQ(q[1].context, (std::vector<int>{50256}));
    EXPECT_EQ(q[1].choices,
              (std::vector<std::vector<int>>{{30, 31}, {32}, {33, 34, 35}, {36, 37}}));
}

TEST(LlmcEval, every_cut_and_every_wrong_count_is_refused) {
    const std::string file = good();
    for (size_t n = 0; n < file.size(); n++)
        EXPECT_THROW(llmc_eval_parse(file.substr(0, n), "f"), Error) << n << " bytes";
    EXPECT_THROW(llmc_eval_parse(file + std::string(2, '\0'), "f"), Error);
    const auto changed = [&](size_t at, int word) {
        std::string bad = file;
        bad[at] = char(word & 255), bad[at + 1] = char(word >> 8);
        try {
            llmc_eval_parse(bad, "f");
        } catch (const Error& e) {
            EXPECT_EQ(e.code, Exit::Damaged);
            return std::string(e.what());
        }
        return std::string("not refused");
    };
    const auto has = [](const std::string& text, const std::string& part) {
        return text.find(part) != std::string::npos;
    };
    EXPECT_TRUE(has(changed(4, 2), "version 2"));
    EXPECT_TRUE(has(changed(8, 3), "2 questions; expected 3"));
    EXPECT_TRUE(has(changed(1024, 65534), "a first word 65534"));
    EXPECT_TRUE(has(changed(1024 + 2, 34), "of 32 bytes at byte 1024; expected 34"));
    EXPECT_TRUE(has(changed(1024 + 2, 30), "more words"));
    EXPECT_TRUE(has(changed(1024 + 4, 1), "an index 1"));
    EXPECT_TRUE(has(changed(1024 + 6, 4), "label 4"));
    EXPECT_TRUE(has(changed(1024 + 8, 5), "a number of choices 5"));
    EXPECT_TRUE(has(changed(1024 + 10, 60000), "more words"));
}

}  // namespace
