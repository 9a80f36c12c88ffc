// llmc/io/data_scripts_test.cpp: the scripts in data/ keep only what has the right checksum.
#include <gtest/gtest.h>

#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace fs = std::filesystem;

namespace {

// SHA-256 of "good\n".
constexpr const char* kGood = "106675dc1490d5cdd6d1f0410731316ce93fc964c6cf6726e2b0d53e19688feb";

class DataScripts : public ::testing::Test {
  protected:
    void SetUp() override {
        if (!fs::exists("data/fetch.sh")) GTEST_SKIP() << "not run from the repository's root";
        dir = fs::path(testing::TempDir()) / "data_scripts_test";
        fs::remove_all(dir);
        fs::create_directories(dir);
    }
    void TearDown() override { fs::remove_all(dir); }

    // Runs a command in bash; `said` gets stdout and stderr.
    int shell(const std::string& command) {
        std::ofstream(dir / "command") << command;
        FILE* pipe = popen(("bash " + (dir / "command").string() + " 2>&1").c_str(), "r");
        said.clear();
        for (int c; (c = std::fgetc(pipe)) != EOF;) said += char(c);
        return WEXITSTATUS(pclose(pipe));
    }
    int fetch(const std::string& urls) {
        return shell(". data/fetch.sh; fetch '" + file().string() + "' " + kGood + " " + urls);
    }
    fs::path file() const { return dir / "sub" / "file"; }
    bool says(const std::string& text) const { return said.find(text) != std::string::npos; }
    std::string url(const std::string& name) const {
        return "'file://" + (dir / name).string() + "' ";
    }
    std::string read(const fs::path& path) const {
        std::ifstream in(path, std::ios::binary);
        return {std::istreambuf_iterator<char>(in), {}};
    }

    fs::path dir;
    std::string said;
};

TEST_F(DataScripts, only_the_right_file_gets_its_name) {
    if (shell("command -v curl")) GTEST_SKIP() << "no curl, which alone reads file:// addresses";
    std::ofstream(dir / "good") << "good\n";
    std::ofstream(dir / "page") << "<!DOCTYPE html>\n<p>Not found\n";
    EXPECT_NE(fetch(url("page")), 0);
    EXPECT_TRUE(says("29 bytes") && says("'<!DOCTYPE html>.'") && says(kGood)) << said;
    EXPECT_NE(fetch(url("none")), 0);
    EXPECT_TRUE(says("cannot reach file://")) << said;
    EXPECT_TRUE(fs::is_empty(dir / "sub"));  // neither the file nor a part of it

    EXPECT_EQ(fetch(url("none") + url("page") + url("good")), 0) << said;
    EXPECT_EQ(read(file()), "good\n");
    EXPECT_EQ(fetch(url("none")), 0) << said;  // there already: nobody is asked

    std::ofstream(file()) << "my own notes\n";
    EXPECT_NE(fetch(url("good")), 0);
    EXPECT_TRUE(says("is another file")) << said;
    EXPECT_EQ(read(file()), "my own notes\n");
}

TEST_F(DataScripts, unknown_names_are_refused) {
    EXPECT_EQ(shell("data/fetch_corpus.sh shakespear"), 2);
    EXPECT_TRUE(says("found shakespear; expected tinyshakespeare, austen or auto")) << said;
}

// By number of questions, since nobody publishes checksums of them.
TEST_F(DataScripts, test_sets_are_whole_or_not_taken) {
    const auto fetch_sets = [&](const std::string& names) {
        return shell("FROM=" + dir.string() + " DIR=" + (dir / "sets").string() +
                     " data/fetch_eval.sh " + names);
    };
    EXPECT_EQ(fetch_sets("helaswag"), 2);
    EXPECT_TRUE(says("found helaswag; expected hellaswag, lambada")) << said;
    EXPECT_EQ(fetch_sets("lambada"), 1);
    EXPECT_TRUE(says("no lambada_test.jsonl in " + dir.string())) << said;

    std::string lines;
    for (int i = 0; i < 5152; i++) lines += "{\"text\": \"a word\"}\n";
    std::ofstream(dir / "lambada_test.jsonl") << lines << "<p>not found\n";
    EXPECT_EQ(fetch_sets("lambada"), 1);
    EXPECT_TRUE(says("found 5152 lines of JSON") && says("expected 5153")) << said;
    EXPECT_FALSE(fs::exists(dir / "sets" / "lambada_test.jsonl"));
    std::ofstream(dir / "lambada_test.jsonl") << lines << "{\"text\": \"the last\"}\n";
    EXPECT_EQ(fetch_sets("lambada"), 0) << said;
    EXPECT_TRUE(fs::exists(dir / "sets" / "lambada_test.jsonl"));

    ASSERT_EQ(shell("cd " + dir.string() +
                    " && mkdir -p data/test data/dev && for i in $(seq 57); do "
                    "echo q > data/test/s${i}_test.csv; echo q > data/dev/s${i}_dev.csv; done; "
                    "tar -cf data.tar data"),
              0);
    EXPECT_EQ(fetch_sets("mmlu"), 0) << said;
    EXPECT_TRUE(fs::exists(dir / "sets" / "mmlu" / "s57_dev.csv"));
    ASSERT_EQ(shell("cd " + dir.string() + " && rm data/dev/s5_dev.csv && tar -cf data.tar data"),
              0);
    EXPECT_EQ(fetch_sets("mmlu"), 1);
    EXPECT_TRUE(says("found 57 subjects and 56 with examples")) << said;
    std::ofstream(dir / "data.tar") << "<html>";
    EXPECT_EQ(fetch_sets("mmlu"), 1);
    EXPECT_TRUE(says("not an archive")) << said;
}

TEST_F(DataScripts, r_data_gives_its_strings) {
    const std::string rdb = (dir / "x.rdb").string();
    // Two objects: a number, which is no text, in version 2, and a vector of strings in version 3.
    std::ofstream(dir / "write.pl") << R"(
        use Compress::Zlib;
        sub object { my $z = compress($_[0]); pack('N', length $_[0]) . $z }
        print object("X\n" . pack('N*', 2, 0x40201, 0x20300, 13, 1, 7));
        print object("X\n" . pack('N*', 3, 0x40201, 0x30500, 5) . 'UTF-8' . pack('N*', 16, 4)
                     . pack('NN', 0x40009, 3) . 'one' . pack('NN', 0x40009, 0)
                     . pack('NN', 9, 0xffffffff) . pack('NN', 0x8009, 2) . "\xc3\xa9");
    )";
    if (shell("perl -MCompress::Zlib -e 1")) GTEST_SKIP() << "no perl with Compress::Zlib";
    ASSERT_EQ(shell("perl " + (dir / "write.pl").string() + " > " + rdb), 0) << said;
    EXPECT_EQ(shell("perl data/rdata_text.pl " + rdb), 0);
    EXPECT_EQ(said, "one\n\nNA\n\xc3\xa9\n");
    fs::resize_file(rdb, fs::file_size(rdb) - 9);
    EXPECT_NE(shell("perl data/rdata_text.pl " + rdb), 0);
    EXPECT_TRUE(says("damaged R data") && says("a broken zlib stream")) << said;
    EXPECT_NE(shell("perl data/rdata_text.pl " + rdb + "2"), 0);
    EXPECT_TRUE(says("cannot open")) << said;
}

}  // namespace
