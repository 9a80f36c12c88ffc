// llmc/io/csv_test.cpp: fields as RFC 4180 has them, broken ones refused.
#include "llmc/io/csv.h"

#include <gtest/gtest.h>

#include "llmc/core/check.h"

namespace {

using Fields = std::vector<std::string>;

TEST(Csv, quotes_commas_and_line_ends) {
    const auto records =
        csv_parse("a,b,c\r\n\n\"1, 2\",\"say \"\"so\"\"\",\"two\nlines\"\n,,\n\"\",x\"y,z", "f");
    ASSERT_EQ(records.size(), 4u);
    EXPECT_EQ(records[0].fields, (Fields{"a", "b", "c"}));
    EXPECT_EQ(records[1].fields, (Fields{"1, 2", "say \"so\"", "two\nlines"}));
    EXPECT_EQ(records[2].fields, (Fields{"", "", ""}));
    EXPECT_EQ(records[3].fields, (Fields{"", "x\"y", "z"}));
    EXPECT_EQ(records[1].line, 3);
    EXPECT_EQ(records[3].line, 6);
    EXPECT_TRUE(csv_parse("", "f").empty());
    EXPECT_TRUE(csv_parse("\n\r\n", "f").empty());
    EXPECT_EQ(csv_parse("a,", "f")[0].fields, (Fields{"a", ""}));
    EXPECT_EQ(csv_parse("a\rb\r\n", "f")[0].fields, (Fields{"a\rb"}));
    // Nothing is read behind a last line without an end.
    const auto part = csv_parse(std::string_view("a,b\nc", 3), "f");
    ASSERT_EQ(part.size(), 1u);
    EXPECT_EQ(part[0].fields, (Fields{"a", "b"}));
}

TEST(Csv, broken_quotes_are_refused) {
    for (const auto& [text, says] : {std::pair{"a\n\"b\nc", "opens on line 2"},
                                     {"\"a\"b,c", "behind a closing quote on line 1"}}) {
        try {
            csv_parse(text, "file.csv");
            ADD_FAILURE() << text;
        } catch (const Error& e) {
            EXPECT_EQ(e.code, Exit::Damaged);
            EXPECT_NE(std::string(e.what()).find(says), std::string::npos) << e.what();
            EXPECT_NE(std::string(e.what()).find("file.csv"), std::string::npos) << e.what();
        }
    }
}

}  // namespace
