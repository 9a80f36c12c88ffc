// llmc/train/log_test.cpp: what is written comes back exactly, and a resume continues the file.
#include "llmc/train/log.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <bit>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "llmc/core/check.h"
#include "llmc/core/rng.h"
#include "llmc/train/device.h"
#include "llmc/train/progress.h"

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct TempDir {
    std::string path;
    TempDir() {
        std::string name = testing::TempDir() + "log_test_XXXXXX";
        path = mkdtemp(name.data());
    }
    ~TempDir() { fs::remove_all(path); }
    std::string file() const { return path + "/log.jsonl"; }
};
std::string read(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
}
std::vector<json> lines(const std::string& path) {
    std::vector<json> all;
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);) all.push_back(json::parse(line));
    return all;
}
LogSetup setup(const TempDir& dir, int resume_step = -1) {
    LogSetup s;
    s.dir = dir.path, s.steps = 100, s.resume_step = resume_step;
    return s;
}
StepReport report(int step, float loss = 1) {
    return {step, loss, 0.5f, 6e-4f, 20, 128, step * int64_t(128)};
}
std::string line(int step) {
    return "{\"step\":" + std::to_string(step) + ",\"loss\":1}\n";
}

// Captures stdout, so that the lines of the console can be compared.
std::string console(const std::function<void()>& body) {
    testing::internal::CaptureStdout();
    body();
    return testing::internal::GetCapturedStdout();
}

}  // namespace

TEST(log, lines_have_the_documented_form) {
    const TempDir dir;
    console([&] {
        Log log(setup(dir));
        log.validation(0, 5.5f);
        log.step(report(1, 4.25f));
        log.event(1, "save", {{"path", "out/a \"b\"\xff"}, {"files", 2}, {"s", 0.5f}}, "saved");
    });
    EXPECT_EQ(read(dir.file()),
              "{\"step\":0,\"val_loss\":5.5}\n"
              "{\"step\":1,\"loss\":4.25,\"grad_norm\":0.5,\"lr\":0.0006,\"ms\":20.0,"
              "\"tokens_per_s\":6400.0,\"tokens\":128}\n"
              "{\"step\":1,\"event\":\"save\",\"path\":\"out/a \\\"b\\\"\xEF\xBF\xBD\",\"files\":2,"
              "\"s\":0.5}\n");
}

TEST(log, every_float_comes_back_exactly_and_what_is_not_finite_is_null) {
    const TempDir dir;
    std::vector<float> values = {0.1f, 1e-45f, 3.4028235e38f, 16777216.f, -0.f, 1.17549435e-38f};
    for (uint64_t i = 0; i < 20'000; i++) {
        const float x = std::bit_cast<float>(uint32_t(random_bits(1, name_hash("log_test"), i)));
        if (std::isfinite(x)) values.push_back(x);
    }
    const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
    console([&] {
        Log log(setup(dir));
        for (float x : values) log.validation(1, x);
        log.step({2, nan, inf, -inf, 1, 1, 1});
    });
    const std::vector<json> all = lines(dir.file());
    ASSERT_EQ(all.size(), values.size() + 1);
    for (size_t i = 0; i < values.size(); i++)
        EXPECT_EQ(std::bit_cast<uint32_t>(float(all[i]["val_loss"].get<double>())),
                  std::bit_cast<uint32_t>(values[i]));
    for (const char* key : {"loss", "grad_norm", "lr"}) EXPECT_TRUE(all.back()[key].is_null());
}

TEST(log, a_resume_drops_later_and_torn_lines) {
    const TempDir dir;
    std::ofstream(dir.file()) << line(1) << line(2) << "{\"step\":2,\"event\":\"save\"}\n"
                              << line(3) << line(4) << "{\"step\":5,\"lo";
    Log(setup(dir, 2));
    EXPECT_EQ(read(dir.file()), line(1) + line(2) + "{\"step\":2,\"event\":\"save\"}\n");
    EXPECT_FALSE(fs::exists(dir.file() + ".tmp"));
    console([&] { Log(setup(dir, 2)).validation(3, 1); });
    EXPECT_EQ(lines(dir.file()).size(), 4u);
}

TEST(log, a_torn_line_alone_and_no_file_are_no_trouble) {
    const TempDir dir;
    std::ofstream(dir.file()) << "{\"st";
    Log(setup(dir, 7));
    EXPECT_EQ(read(dir.file()), "");
    // Blocks of zeros are what a power loss leaves behind a file's last good line.
    std::ofstream(dir.file()) << line(1) << std::string(5000, '\0') << "\n" << line(2);
    Log(setup(dir, 7));
    EXPECT_EQ(read(dir.file()), line(1) + line(2));
}

TEST(log, a_new_run_starts_empty) {
    const TempDir dir;
    std::ofstream(dir.file()) << "{\"step\":0,\"val_loss\":5}\n" << line(1);
    Log(setup(dir));
    EXPECT_EQ(read(dir.file()), "");
}

TEST(log, nothing_is_rewritten_without_need) {
    const TempDir dir;
    std::ofstream(dir.file()) << line(1);
    const auto before = fs::last_write_time(dir.file());
    fs::create_directory(dir.file() + ".tmp");  // a rewrite would fail
    Log(setup(dir, 1));
    EXPECT_EQ(fs::last_write_time(dir.file()), before);
    EXPECT_THROW(Log(setup(dir, 0)), Error);
    EXPECT_EQ(read(dir.file()), line(1));
}

TEST(log, a_foreign_file_is_refused_and_left_alone) {
    const TempDir dir;
    const std::string diary = "dear diary\nwhat a day\n";
    std::ofstream(dir.file()) << diary;
    try {
        Log{setup(dir)};
        FAIL();
    } catch (const Error& e) {
        EXPECT_EQ(e.code, Exit::Usage);
        EXPECT_NE(std::string(e.what()).find("dear diary"), std::string::npos);
    }
    EXPECT_EQ(read(dir.file()), diary);
}

TEST(log, a_full_disk_is_said_once_and_leaves_whole_lines) {
    const TempDir dir;
    console([&] {
        Log log(setup(dir));
        log.event(1, "long", {{"text", std::string(50'000, 'x')}}, "");
        // RLIMIT_FSIZE stands for a full disk: write() fails in the middle of a line. The captured
        // stderr is a file too, far from the limit.
        const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
        rlimit old{};
        getrlimit(RLIMIT_FSIZE, &old);
        const rlimit small{fs::file_size(dir.file()) + 10, old.rlim_max};
        setrlimit(RLIMIT_FSIZE, &small);
        testing::internal::CaptureStderr();
        log.validation(2, 1);
        log.validation(3, 1);
        const std::string said = testing::internal::GetCapturedStderr();
        setrlimit(RLIMIT_FSIZE, &old);
        std::signal(SIGXFSZ, old_handler);
        EXPECT_NE(said.find("writing " + dir.file()), std::string::npos) << said;
        EXPECT_EQ(said.find("writing"), said.rfind("writing")) << said;
        EXPECT_NE(said.find("training goes on"), std::string::npos) << said;
        log.validation(4, 1);
    });
    const std::vector<json> all = lines(dir.file());
    ASSERT_EQ(all.size(), 2u);
    EXPECT_EQ(all[1]["step"], 4);
}

TEST(log, a_silent_rank_writes_nothing) {
    const TempDir dir;
    LogSetup s = setup(dir);
    s.speaks = false;
    EXPECT_EQ(console([&] {
                  Log log(s);
                  log.step(report(1));
                  log.validation(1, 1);
                  log.event(1, "save", {}, "saved");
                  log.sample(1, "text");
                  log.sync();
              }),
              "");
    EXPECT_FALSE(fs::exists(dir.file()));
}

TEST(log, console_lines_are_plain_in_a_file) {
    const TempDir dir;
    LogSetup s = setup(dir);
    s.flops_per_token = 1e6, s.peak_flops = 1.28e10;  // 6400 tok/s * 1e6 / 1.28e10 = 50%
    const std::string text = console([&] {
        Log log(s);
        log.step(report(1, 4.25f));
        log.validation(1, 4.5f);
    });
    EXPECT_EQ(text,
              "step   1/100 | loss 4.2500 | norm 0.500 | lr 6.00e-04 | 20 ms | 6,400 tok/s | "
              "MFU 50.0% | ETA 2s\n"
              "step   1/100 | val loss 4.5000\n");
    EXPECT_NE(console([&] { Log(setup(dir)).step(report(1)); }).find("MFU n/a"), std::string::npos);
}

TEST(log, flops_of_gpt2_124M) {
    // Kaplan et al. 2020, arXiv:2001.08361, table 1: 2 N_layers + head = 2 (85M + 38.6M) forward.
    const ModelConfig c = model_config("gpt2:124M");
    const double N = 12.0 * 12 * 768 * 768 + 50257.0 * 768;
    EXPECT_DOUBLE_EQ(flops_per_token(c, 1024), 6 * N + 12.0 * 12 * 768 * 1024);
    // LLaMA's MLP has three matrices; q is as wide as the model, k and v a quarter.
    const ModelConfig llama = model_config("llama:3.2-1B");
    const double M = 16 * (2048.0 * (2048 + 2 * 512 + 2048) + 3 * 2048.0 * 8192) + 128256 * 2048.0;
    EXPECT_DOUBLE_EQ(flops_per_token(llama, 2048), 6 * M + 12.0 * 16 * 2048 * 2048);
}

TEST(log, flops_of_qwen3_whose_attention_is_wider_than_the_model) {
    // By hand, C = 1024, A = 16 x 128 = 2048. A layer: q 1024 x 2048, k and v 1024 x 1024 each, out
    // 2048 x 1024, three matrices of 1024 x 3072: 15,728,640; 28 layers 440,401,920; the head
    // 151936 x 1024 = 155,582,464. 6 (440,401,920 + 155,582,464) + 12 x 28 x 2048 x 1024 =
    // 4,280,549,376.
    EXPECT_DOUBLE_EQ(flops_per_token(model_config("qwen3:0.6B"), 1024), 4280549376.0);
}

TEST(log, the_peak_is_known_by_the_device_s_whole_name) {
    EXPECT_DOUBLE_EQ(bf16_peak_flops("NVIDIA A100-SXM4-80GB"), 312e12);
    EXPECT_DOUBLE_EQ(bf16_peak_flops("NVIDIA H100 80GB HBM3"), 989.4e12);
    EXPECT_DOUBLE_EQ(bf16_peak_flops("NVIDIA GeForce RTX 4090"), 165.2e12);
    for (const char* other : {"NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 4090 D",
                              "NVIDIA A100-SXM4-80GB MIG 1g.10gb", "NVIDIA", ""})
        EXPECT_EQ(bf16_peak_flops(other), 0) << other;
    EXPECT_EQ(device_peak_flops(Options()), 0);  // fp32
}

TEST(progress, texts) {
    EXPECT_EQ(duration_text(0.2), "0s");
    EXPECT_EQ(duration_text(59.6), "1m00s");
    EXPECT_EQ(duration_text(3600 * 2 + 60 * 7), "2h07m");
    EXPECT_EQ(duration_text(86400 * 3 + 3600 * 4 + 5), "3d04h");
    EXPECT_EQ(duration_text(std::nan("")), "-");
    EXPECT_EQ(grouped(0), "0");
    EXPECT_EQ(grouped(999), "999");
    EXPECT_EQ(grouped(1000), "1,000");
    EXPECT_EQ(grouped(-1234567), "-1,234,567");
    EXPECT_EQ(grouped(-123), "-123");
}

TEST(progress, nothing_in_a_file) {
    testing::internal::CaptureStderr();
    {
        Progress bar("validation", 10);
        for (int i = 0; i < 10; i++) bar.update(i + 1);
    }
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}
