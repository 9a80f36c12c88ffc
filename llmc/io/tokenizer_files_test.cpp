// llmc/io/tokenizer_files_test.cpp: what no tokenizer is in is not read.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "llmc/core/check.h"
#include "llmc/io/tokenizer.h"

namespace fs = std::filesystem;

namespace {

void refused(const fs::path& spec, Exit code, const std::string& text) {
    try {
        tokenizer_open(spec.string());
        ADD_FAILURE() << spec << " was not refused";
    } catch (const Error& e) {
        EXPECT_EQ(e.code, code) << e.what();
        EXPECT_NE(std::string(e.what()).find(text), std::string::npos) << e.what();
    }
}

TEST(tokenizer_files, only_regular_files_of_bounded_size_are_read) {
    const fs::path dir = fs::path(testing::TempDir()) / str("tokenizer_files_test.", ::getpid());
    fs::create_directories(dir);
    for (const char* name : {"vocab.json", "merges.txt", "x.json", "x.model", "x.bin"}) {
        std::ofstream(dir / name).close();
        refused(dir / name, Exit::Damaged, "no content");
        // Of holes: neither the disk nor memory holds it.
        fs::resize_file(dir / name, kMaxTokenizerBytes + 1);
        refused(dir / name, Exit::Damaged, "is too large");
        fs::remove(dir / name);
        ASSERT_EQ(mkfifo((dir / name).c_str(), 0600), 0);  // opened to read, it waits for a writer
        refused(dir / name, Exit::Usage, "not a regular file");
        fs::remove(dir / name);
        std::ofstream(dir / name) << "{}";  // for the other file of its pair
    }
    fs::remove_all(dir);
}

}  // namespace
