// llmc/train/documents_test.cpp: the stream of documents equals splitting the whole text at once.
#include "llmc/train/documents.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>

#include "llmc/core/check.h"

namespace fs = std::filesystem;

namespace {

struct Document {
    std::string text;
    bool validation;
    bool operator==(const Document&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Document& d) {
    return out << (d.validation ? "val '" : "train '") << d.text << "'";
}

class Documents : public ::testing::Test {
  protected:
    void SetUp() override {
        dir = fs::path(testing::TempDir()) / "documents_test";
        fs::remove_all(dir);
        fs::create_directories(dir);
    }
    void TearDown() override { fs::remove_all(dir); }
    std::string write(const std::string& name, const std::string& text) const {
        fs::remove(dir / name);  // rewriting in place makes some file systems wait for the disk
        std::ofstream(dir / name, std::ios::binary) << text;
        return (dir / name).string();
    }
    // All documents, put together from parts of about part_bytes.
    std::vector<Document> read(std::vector<std::string> files, double val_fraction = 0,
                               const std::string& separator = "<|endoftext|>",
                               size_t part_bytes = 7) {
        // Cuts before the last space or, if so asked, wherever the text ends.
        const auto cut = [&](std::string_view text) {
            const size_t space = text.rfind(' ');
            return cut_anywhere ? text.size() : space == std::string_view::npos ? 0 : space;
        };
        DocumentReader reader({files, val_fraction, separator, cut, part_bytes});
        std::vector<Document> documents;
        parts = 0;
        for (TextPart part; reader.next(part); parts++) {
            EXPECT_FALSE(part.text.empty());
            if (part.begins_document)
                documents.push_back({part.text, part.validation});
            else
                documents.back().text += part.text;
            EXPECT_EQ(documents.back().validation, part.validation);
        }
        EXPECT_EQ(reader.bytes_read(), reader.bytes_total());
        return documents;
    }
    fs::path dir;
    int parts = 0;
    bool cut_anywhere = false;
};

// The rules of documents.h, by the simplest code, on texts that are all in memory.
std::vector<Document> split_at_once(const std::vector<std::string>& files, double val_fraction,
                                    const std::string& separator) {
    int64_t total = 0, base = 0;
    for (const std::string& text : files) total += int64_t(text.size());
    const int64_t split = total - std::llround(val_fraction * double(total));
    bool validation = false;
    std::vector<Document> documents;
    for (const std::string& text : files) {
        std::string document;
        const auto close = [&] {
            if (!document.empty()) documents.push_back({document, validation});
            document.clear();
        };
        for (size_t i = 0; i < text.size();) {
            const bool line_starts = i == 0 || text[i - 1] == '\n';
            if (line_starts && !validation && val_fraction > 0 && base + int64_t(i) >= split) {
                close();
                validation = true;
            }
            if (!separator.empty() && text.compare(i, separator.size(), separator) == 0) {
                close();
                i += separator.size();
                if (line_starts && i < text.size() && text[i] == '\n') i++;
            } else {
                document += text[i++];
            }
        }
        close();
        base += int64_t(text.size());
    }
    return documents;
}

TEST_F(Documents, a_separator_on_its_own_line_takes_the_line) {
    const std::string file =
        write("a.txt",
              "one\n<|endoftext|>\n two\n<|endoftext|>three<|endoftext|>\nfour\n"
              "<|endoftext|>\n<|endoftext|>\nfive\n<|endoftext|>");
    EXPECT_EQ(read({file}), (std::vector<Document>{{"one\n", false},
                                                   {" two\n", false},
                                                   {"three", false},
                                                   {"\nfour\n", false},
                                                   {"five\n", false}}));
    EXPECT_EQ(read({file}, 0, "").size(), 1u);
    EXPECT_EQ(read({file}, 0, "\n<|").size(), 6u);
}

TEST_F(Documents, validation_is_the_end_of_the_text_from_a_line_on) {
    const std::string a = write("a.txt", "0123456\n890123456\n"), b = write("b.txt", "890\n2345");
    // 26 bytes: 10% is 3, from byte 23 on no line begins; 20% is 5, from 21 on: "2345" at 22.
    EXPECT_EQ(read({a, b}, 0.1),
              (std::vector<Document>{{"0123456\n890123456\n", false}, {"890\n2345", false}}));
    EXPECT_EQ(
        read({a, b}, 0.2),
        (std::vector<Document>{{"0123456\n890123456\n", false}, {"890\n", false}, {"2345", true}}));
    EXPECT_EQ(read({a, b}, 0.3),
              (std::vector<Document>{{"0123456\n890123456\n", false}, {"890\n2345", true}}));
    EXPECT_EQ(
        read({a, b}, 0.9),
        (std::vector<Document>{{"0123456\n", false}, {"890123456\n", true}, {"890\n2345", true}}));
    EXPECT_EQ(read({a, b}, 0), read({a, b}, 1e-9));
}

TEST_F(Documents, streaming_equals_splitting_at_once) {
    std::mt19937 random(5);
    const std::vector<std::string> alphabet = {
        "a", "bc", " ", " d", "\n", "\n\n", "<|", "<|endoftext|>", "endoftext|>", "|"};
    size_t documents = 0, validation = 0, pieces = 0;
    for (int round = 0; round < 1000; round++) {
        std::vector<std::string> texts(1 + random() % 3), files;
        for (size_t k = 0; k < texts.size(); k++) {
            for (int n = int(random() % 40); n > 0; n--)
                texts[k] += alphabet[random() % alphabet.size()];
            files.push_back(write(std::to_string(k) + ".txt", texts[k]));
        }
        const double fraction = random() % 4 ? double(random() % 1000) / 1000 : 0;
        const std::string separator = random() % 4 ? "<|endoftext|>" : random() % 2 ? "|" : "";
        cut_anywhere = random() % 2;
        const std::vector<Document> expected = split_at_once(texts, fraction, separator);
        ASSERT_EQ(read(files, fraction, separator, 1 + random() % 30), expected)
            << "round " << round;
        documents += expected.size();
        pieces += size_t(parts);
        for (const Document& d : expected) validation += d.validation;
    }
    EXPECT_GT(pieces, documents * 11 / 10);  // documents were cut,
    EXPECT_GT(validation, documents / 5);    // and both kinds were there
}

TEST_F(Documents, jsonl_has_a_document_a_line) {
    const std::string a =
        write("a.jsonl",
              "{\"text\": \"one\\ntwo <|endoftext|> \\u00e9\", \"id\": 1}\n\n  \r\n"
              "{\"text\": \"\"}\n{\"id\": 2, \"text\": \"three\"}\r\n{\"text\":\"four\"}");
    const std::vector<Document> all = {
        {"one\ntwo <|endoftext|> \xc3\xa9", false}, {"three", false}, {"four", false}};
    for (const size_t part_bytes : {1, 5, 1000})
        EXPECT_EQ(read({a}, 0, "<|endoftext|>", part_bytes), all);
    EXPECT_EQ(read({a}, 0.2).back(), (Document{"four", true}));
    EXPECT_EQ(read({a}, 0.2)[1], (Document{"three", false}));
}

TEST_F(Documents, bad_input_is_refused_by_name) {
    const auto refused = [&](std::vector<std::string> files, Exit code, const std::string& text,
                             double fraction = 0) {
        try {
            read(files, fraction);
            ADD_FAILURE() << "not refused; expected: " << text;
        } catch (const Error& e) {
            EXPECT_EQ(int(e.code), int(code)) << e.what();
            EXPECT_NE(std::string(e.what()).find(text), std::string::npos) << e.what();
        }
    };
    const std::string good = write("good.txt", "text");
    refused({}, Exit::Usage, "no text files");
    refused({good, (dir / "none.txt").string()}, Exit::Usage, "none.txt");
    refused({dir.string()}, Exit::Usage, "a directory");
    refused({"/dev/null"}, Exit::Usage, "not a regular file");
    refused({good}, Exit::Usage, "found 1", 1);
    refused({good}, Exit::Usage, "-0.1", -0.1);
    refused({good}, Exit::Usage, "nan", NAN);
    for (const char* line :
         {"{", "[]", "7", "{\"txt\": \"a\"}", "{\"text\": 7}", "text", "{\"text\": \"\xff\"}",
          "{\"prompt\": \"a\"}", "{\"prompt\": \"a\", \"completion\": 1}", "{\"parts\": 7}",
          "{\"parts\": [{\"text\": \"a\"}]}"})
        refused({write("bad.jsonl", std::string("{\"text\":\"a\"}\n\n") + line + "\n")},
                Exit::Damaged, "bad.jsonl:3");
}

}  // namespace
