// llmc/train/tokenize_test.cpp: token files from text, whole or not at all, the same on every run.
#include "llmc/train/tokenize.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <random>

#include "llmc/core/check.h"
#include "llmc/core/hash.h"
#include "llmc/io/data_info.h"
#include "llmc/io/tokenizer.h"
#include "llmc/io/tokens.h"

namespace fs = std::filesystem;

namespace {
bool trained(const TokenShard& shard, int64_t token) {
    uint8_t trained = 0;
    shard.read_mask(&trained, token, 1);
    return trained;
}

std::string read_all(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

class Tokenize : public ::testing::Test {
  protected:
    void SetUp() override {
        dir = fs::path(testing::TempDir()) / "tokenize_test";
        fs::remove_all(dir);
        fs::create_directories(dir);
        opt.tokenizer = "byte";
        opt.out = (dir / "out" / "set").string();
        opt.val_fraction = 0;
    }
    void TearDown() override { fs::remove_all(dir); }

    std::string write(const std::string& name, const std::string& text) const {
        std::ofstream(dir / name, std::ios::binary) << text;
        return (dir / name).string();
    }
    // Runs and returns what it said on stdout.
    std::string run() const {
        testing::internal::CaptureStdout();
        testing::internal::CaptureStderr();
        try {
            tokenize_run(opt);
        } catch (...) {
            testing::internal::GetCapturedStdout();
            testing::internal::GetCapturedStderr();
            throw;
        }
        testing::internal::GetCapturedStderr();
        return testing::internal::GetCapturedStdout();
    }
    void refused(Exit code, const std::string& text) const {
        try {
            run();
            ADD_FAILURE() << "not refused; expected: " << text;
        } catch (const Error& e) {
            EXPECT_EQ(int(e.code), int(code)) << e.what();
            EXPECT_NE(std::string(e.what()).find(text), std::string::npos)
                << "no '" << text << "' in: " << e.what();
        }
    }
    // All ids of the files PREFIX_<part>_*.bin.
    std::vector<int> ids(const std::string& part) const {
        std::vector<int> all;
        const TokenFiles files = TokenFiles::open(opt.out + "_" + part + "_*.bin", 1 << 20);
        for (const TokenShard& shard : files.shards()) {
            all.resize(all.size() + size_t(shard.tokens()));
            shard.read(all.data() + all.size() - shard.tokens(), 0, shard.tokens(), 1 << 20);
        }
        return all;
    }
    std::map<std::string, std::string> folder() const {
        std::map<std::string, std::string> files;
        if (fs::exists(dir / "out"))
            for (const auto& entry : fs::directory_iterator(dir / "out"))
                files[entry.path().filename().string()] = read_all(entry.path());
        return files;
    }

    fs::path dir;
    Options opt;
};

TEST_F(Tokenize, bytes_of_two_documents) {
    opt.files = {write("a.txt", "Hi\n<|endoftext|>\nyou\n")};
    opt.shard_tokens = 5;
    const std::string said = run();
    EXPECT_EQ(ids("train"), (std::vector<int>{256, 'H', 'i', '\n', 256, 'y', 'o', 'u', '\n'}));
    const auto files = folder();
    ASSERT_EQ(files.size(), 4u);
    // The first shard byte by byte, as llm.c reads it: 20240520 is 0x0134d888.
    std::string expected(1024 + 10, '\0');
    const std::string head("\x88\xd8\x34\x01\x01\0\0\0\x05\0\0\0", 12),
        body("\0\x01H\0i\0\n\0\0\x01", 10);
    expected.replace(0, 12, head).replace(1024, 10, body);
    EXPECT_EQ(files.at("set_train_000000.bin"), expected);
    EXPECT_EQ(files.at("set_train_000001.bin").size(), 1024u + 8);
    EXPECT_NE(said.find("9 tokens"), std::string::npos) << said;
    EXPECT_NE(said.find("set_train_000000.bin ... set_train_000001.bin"), std::string::npos)
        << said;
}

TEST_F(Tokenize, only_completions_are_trained_on) {
    opt.files = {write(
        "a.jsonl", R"({"prompt": "Hi", "completion": "yo"})"
                   "\n"
                   R"({"text": "all"})"
                   "\n"
                   R"({"parts": [{"text": "a", "train": true}, {"text": "bc", "train": false}]})"
                   "\n"
                   R"({"prompt": "", "completion": "d"})"
                   "\n")};
    opt.shard_tokens = 9;
    const std::string said = run();
    // . stands for end-of-text, which is trained on where it ends something that is.
    const std::string text = ".Hiyo.all.abc.d", mask = "100111111110001";
    const auto files = TokenFiles::open(opt.out + "_train_*.bin", 257);
    ASSERT_EQ(files.shards().size(), 2u);
    for (size_t i = 0; i < text.size(); i++) {
        const TokenShard& shard = files.shards()[i / 9];
        int id;
        shard.read(&id, int64_t(i % 9), 1, 257);
        EXPECT_EQ(id, text[i] == '.' ? 256 : text[i]) << i;
        EXPECT_EQ(trained(shard, int64_t(i % 9)), mask[i] == '1') << i;
    }
    EXPECT_NE(said.find("15 tokens (10 to train on)"), std::string::npos) << said;

    const auto info = data_info_find({opt.out + "_train_*.bin"});
    ASSERT_TRUE(info);
    EXPECT_EQ(info->train.untrained, 5);
    EXPECT_EQ(info->train.bytes, 11);
    EXPECT_TRUE(info->train.shards[0].masked && info->train.shards[1].masked);
    const std::string second = read_all(opt.out + "_train_000001.bin");
    ASSERT_EQ(second.size(), 1024u + 12 + 1);
    EXPECT_EQ(second[1024 + 12],
              0b100011);  // tokens 9.. of the mask above, the first in the lowest bit
    EXPECT_EQ(info->train.shards[1].digest, digest_bytes(second.data() + 1024, 13));
    fs::resize_file(opt.out + "_train_000001.bin", 1024 + 12);
    EXPECT_THROW(data_info_find({opt.out + "_train_*.bin"}), Error);
}

TEST_F(Tokenize, a_shard_without_prompts_has_no_mask) {
    opt.files = {
        write("a.jsonl", "{\"text\": \"1234567\"}\n{\"prompt\": \"p\", \"completion\": \"c\"}\n")};
    opt.shard_tokens = 8;
    run();
    const auto files = TokenFiles::open(opt.out + "_train_*.bin", 257);
    ASSERT_EQ(files.shards().size(), 2u);
    EXPECT_FALSE(files.shards()[0].masked());
    EXPECT_TRUE(files.shards()[1].masked());
}

TEST_F(Tokenize, a_token_across_the_border_is_not_trained_on) {
    // It learns "ab", "abc", " abc": a text "abc" is one token wherever its border lies.
    Options bpe;
    bpe.files = {write("t.txt", "abc abc abc abc")};
    bpe.vocab_size = 260;
    bpe.out = (dir / "bpe.json").string();
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    train_bpe_run(bpe);
    testing::internal::GetCapturedStdout();
    testing::internal::GetCapturedStderr();
    opt.tokenizer = bpe.out;
    opt.files = {write("a.jsonl", R"({"prompt": "x abc", "completion": " abcab"})"
                                  "\n"
                                  R"({"prompt": "a", "completion": "bc abc"})"
                                  "\n"
                                  R"({"parts": [{"text": "a", "train": true}, )"
                                  R"({"text": "bc", "train": false}]})"
                                  "\n")};
    run();
    const auto tokenizer = tokenizer_open(opt.tokenizer);
    const auto files = TokenFiles::open(opt.out + "_train_*.bin", 260);
    const TokenShard& shard = files.shards()[0];
    std::string shown;
    for (int64_t i = 0; i < shard.tokens(); i++) {
        int id;
        shard.read(&id, i, 1, 260);
        const std::string bytes = id == tokenizer->eot() ? "." : tokenizer->token_bytes(id);
        shown += trained(shard, i) ? "[" + bytes + "]" : bytes;
    }
    EXPECT_EQ(shown, "[.]x abc[ abc][ab][.]abc[ abc][.]abc");
}

TEST_F(Tokenize, the_note_leads_to_the_tokenizer) {
    opt.files = {write("a.txt", "some words\nand more\n")};
    opt.val_fraction = 0.45;
    run();
    const auto info = data_info_find({opt.out + "_train_*.bin", opt.out + "_val_*.bin"});
    ASSERT_TRUE(info.has_value());
    EXPECT_EQ(info->tokenizer_name, "byte");
    EXPECT_EQ(info->vocab_size, 257);
    EXPECT_EQ(info->eot, 256);
    EXPECT_EQ(info->train.bytes, 11);
    EXPECT_EQ(info->train.tokens, 12);
    EXPECT_EQ(info->val.documents, 1);
    EXPECT_EQ(info->val.shards.at(0).tokens, 10);
    const std::string val = read_all(opt.out + "_val_000000.bin").substr(1024);
    EXPECT_EQ(info->val.shards.at(0).digest, digest_bytes(val.data(), val.size()));
    const auto tokenizer = tokenizer_open(info->tokenizer);
    EXPECT_EQ(tokenizer->decode(ids("train")), "<|endoftext|>some words\n");
    EXPECT_EQ(tokenizer->decode(ids("val")), "<|endoftext|>and more\n");

    // Elsewhere the note is found beside the copies; what is not whole is refused.
    fs::copy(dir / "out", dir / "copy");
    const std::string copy = (dir / "copy" / "set").string();
    EXPECT_EQ(data_info_find({copy + "_train_*.bin"})->tokenizer, copy + "_tokenizer.json");
    fs::resize_file(copy + "_val_000000.bin", 1026);
    EXPECT_THROW(data_info_find({copy + "_train_*.bin"}), Error);
    fs::remove(copy + "_val_000000.bin");
    EXPECT_THROW(data_info_find({copy + "_train_*.bin"}), Error);
    fs::copy(opt.out + "_val_000000.bin", copy + "_val_000000.bin");
    EXPECT_TRUE(data_info_find({copy + "_train_*.bin"}));
    std::ofstream(copy + "_tokenizer.json", std::ios::app) << " ";
    EXPECT_THROW(data_info_find({copy + "_train_*.bin"}), Error);
    std::ofstream(copy + ".json") << "{";
    EXPECT_THROW(data_info_find({copy + "_train_*.bin"}), Error);
    std::ofstream(copy + ".json") << "{\"format\": \"train_gpt data 2\"}";
    EXPECT_THROW(data_info_find({copy + "_train_*.bin"}), Error);
    std::ofstream(copy + ".json") << "{\"somebody\": \"else\"}";
    EXPECT_FALSE(data_info_find({copy + "_train_*.bin"}));
    fs::remove(copy + ".json");
    EXPECT_FALSE(data_info_find({copy + "_train_*.bin"}));
}

TEST_F(Tokenize, data_of_two_tokenizers_does_not_mix) {
    opt.files = {write("a.txt", "abab abab\n")};
    run();
    const std::string first = opt.out;
    Options bpe;
    bpe.files = opt.files, bpe.vocab_size = 258, bpe.out = (dir / "bpe.json").string();
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    train_bpe_run(bpe);
    EXPECT_NE(testing::internal::GetCapturedStdout().find("258 tokens"), std::string::npos);
    testing::internal::GetCapturedStderr();
    opt.tokenizer = bpe.out;
    opt.out = (dir / "out" / "two").string();
    run();
    EXPECT_EQ(ids("train"), (std::vector<int>{257, 256, 256, ' ', 256, 256, '\n'}));
    EXPECT_EQ(data_info_find({opt.out + "_*.bin"})->tokenizer_name, "bpe-258");
    EXPECT_THROW(data_info_find({opt.out + "_*.bin", first + "_*.bin"}), Error);
}

TEST_F(Tokenize, prefixes_are_read_from_shard_names) {
    EXPECT_EQ(data_prefix("a/b_train_000000.bin"), "a/b");
    EXPECT_EQ(data_prefix("b_val_12.bin"), "b");
    EXPECT_EQ(data_prefix("a_train_b_val_000001.bin"), "a_train_b");
    for (const char* name : {"b_train_.bin", "b_train_1", "b_train_1.bin.tmp", "_train_1.bin",
                             "btrain_1.bin", "1.bin", ""})
        EXPECT_EQ(data_prefix(name), "") << name;
}

TEST_F(Tokenize, streaming_parallel_and_whole_file_encoding_agree) {
    const char* data = std::getenv("TEST_DATA");
    const fs::path test_data = data ? data : "data/test";
    if (!fs::exists(test_data / "gpt2_bpe")) GTEST_SKIP() << "no gpt2_bpe: set TEST_DATA";
    opt.tokenizer = (test_data / "gpt2_bpe").string();
    // Longer than several batches, with every kind of character, lines of all lengths.
    std::mt19937 random(3);
    const std::string shakespeare = read_all(test_data / "tinyshakespeare.txt");
    std::string text;
    for (int i = 0; i < 400; i++) {
        text += shakespeare.substr(random() % 1000000, random() % 20000);
        for (int k = int(random() % 30); k > 0; k--) text += char(random());
    }
    opt.files = {write("a.txt", text)};
    const auto tokenizer = tokenizer_open(opt.tokenizer);
    std::vector<int> expected = {50256};
    tokenizer->encode(text, false, expected);
    opt.separator = "";
    opt.threads = 3;
    run();
    EXPECT_EQ(ids("train"), expected);
    const auto first = folder();
    opt.threads = 1;
    run();
    EXPECT_EQ(folder(), first);  // byte for byte, note and tokenizer included
}

TEST_F(Tokenize, a_shorter_run_leaves_nothing_of_a_longer_one) {
    opt.files = {write("a.txt", "0123456789\nabc\n")};
    opt.shard_tokens = 4;
    opt.val_fraction = 0.3;
    run();
    EXPECT_EQ(folder().size(), 2u + 3 + 2);
    write("out/set_train_000009.bin.tmp", "of a run that was killed");
    write("out/sets_train_000000.bin", "of another set");
    opt.shard_tokens = 100;
    opt.val_fraction = 0;
    run();
    const auto files = folder();
    EXPECT_EQ(files.size(), 4u);
    EXPECT_TRUE(files.count("sets_train_000000.bin"));
    EXPECT_EQ(ids("train").size(), 16u);
}

TEST_F(Tokenize, what_others_wrote_is_not_overwritten) {
    opt.files = {write("a.txt", "text\n")};
    fs::create_directories(dir / "out");
    for (const char* name :
         {"set_train_000007.bin", "set_val_000000.bin", "set.json", "set_tokenizer.json"}) {
        write(std::string("out/") + name, "{\"a\": 1}");
        refused(Exit::Usage, std::string(name) + " is in the way");
        EXPECT_EQ(folder().size(), 1u);
        fs::remove(dir / "out" / name);
    }
    run();
    run();
}

TEST_F(Tokenize, faults_leave_the_old_data_as_it_was) {
    opt.files = {write("a.txt", "text\nmore\n")};
    opt.val_fraction = 0.5;
    run();
    const auto before = folder();
    const std::string good = opt.files[0];
    opt.files = {good, write("b.jsonl", "{\"text\": \"fine\"}\nbroken\n")};
    refused(Exit::Damaged, "b.jsonl:2");
    opt.files = {write("empty.txt", "")};
    refused(Exit::Usage, "no text to train on");
    opt.files = {write("line.txt", "one line only")};
    refused(Exit::Usage, "no text for validation");
    opt.files = {good};
    opt.tokenizer = "nothing";
    refused(Exit::Usage, "no such tokenizer");
    opt.tokenizer = "byte";
    for (const int64_t n : {int64_t(0), int64_t(-5), int64_t(1) << 31}) {
        opt.shard_tokens = n;
        refused(Exit::Usage, std::to_string(n));
    }
    opt.shard_tokens = 100;
    EXPECT_EQ(folder(), before);
    for (const char* out : {"", "dir/", ".."}) {
        opt.out = out;
        refused(Exit::Usage, "--out needs a name");
    }
    opt.out = good + "/x";  // a folder that is a file
    refused(Exit::Usage, "cannot make the folder");
    EXPECT_EQ(folder(), before);
}

TEST_F(Tokenize, a_full_disk_leaves_the_old_data_as_it_was) {
    opt.files = {write("a.txt", "text\n")};
    run();
    const auto before = folder();
    opt.files = {write("b.txt", std::string(100000, 'b'))};
    // A limit on the size of files stands in for the disk: writing beyond it fails.
    const auto old_action = std::signal(SIGXFSZ, SIG_IGN);
    rlimit old_limit;
    getrlimit(RLIMIT_FSIZE, &old_limit);
    rlimit limit = old_limit;
    limit.rlim_cur = 50000;
    setrlimit(RLIMIT_FSIZE, &limit);
    refused(Exit::Resource, "set_train_000000.bin");
    setrlimit(RLIMIT_FSIZE, &old_limit);
    std::signal(SIGXFSZ, old_action);
    EXPECT_EQ(folder(), before);
}

TEST_F(Tokenize, train_bpe_overwrites_tokenizers_only) {
    Options bpe;
    bpe.files = {write("a.txt", "abab abab abab\n<|endoftext|>\nababab\n")};
    bpe.vocab_size = 400;
    const auto run_bpe = [&] {
        testing::internal::CaptureStdout();
        testing::internal::CaptureStderr();
        try {
            train_bpe_run(bpe);
        } catch (...) {
            testing::internal::GetCapturedStdout();
            testing::internal::GetCapturedStderr();
            throw;
        }
        testing::internal::GetCapturedStdout();
        return testing::internal::GetCapturedStderr();
    };
    bpe.out = (dir / "new" / "").string();
    EXPECT_NE(run_bpe().find("not 400"), std::string::npos);
    const std::string made = read_all(dir / "new" / "tokenizer.json");
    EXPECT_GT(made.size(), 1000u);
    EXPECT_EQ(made.find("endof"), made.find("endoftext"));  // the separator taught nothing
    bpe.out = (dir / "new").string();
    run_bpe();
    EXPECT_EQ(read_all(dir / "new" / "tokenizer.json"), made);
    bpe.out = bpe.files[0];
    EXPECT_THROW(run_bpe(), Error);
    bpe.out = "";
    EXPECT_THROW(run_bpe(), Error);
    fs::create_symlink("loop", dir / "loop");  // leads nowhere: asking what it is is an error
    for (const char* out : {"loop", "loop/x.json"}) {
        bpe.out = (dir / out).string();
        EXPECT_THROW(run_bpe(), Error);
    }
    bpe.out = (dir / "x.json").string();
    bpe.vocab_size = 256;
    EXPECT_THROW(run_bpe(), Error);
    bpe.vocab_size = 400;
    bpe.files = {write("empty.txt", "")};
    EXPECT_THROW(run_bpe(), Error);
    EXPECT_FALSE(fs::exists(dir / "x.json"));
}

}  // namespace
