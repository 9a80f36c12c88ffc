// llmc/io/safetensors_test.cpp: what is written comes back; what breaks the format is refused.
#include "llmc/io/safetensors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "llmc/core/check.h"

namespace fs = std::filesystem;

namespace {
struct Folder {
    std::string path = testing::TempDir() + "safetensors_" + std::to_string(getpid());
    Folder() {
        fs::remove_all(path);
        fs::create_directories(path);
    }
    ~Folder() { fs::remove_all(path); }
    std::string write(const std::string& name, const std::string& bytes) const {
        std::ofstream(path + "/" + name, std::ios::binary) << bytes;
        return path + "/" + name;
    }
};

std::string file_of(const std::string& header, const std::string& data) {
    const uint64_t n = header.size();
    return std::string(reinterpret_cast<const char*>(&n), 8) + header + data;
}

// The error of opening it; "" if it opens.
std::string error_of(const std::string& path) {
    try {
        SafeTensors file(path);
    } catch (const Error& e) {
        EXPECT_EQ(e.code, Exit::Damaged) << e.what();
        return e.what();
    }
    return "";
}

SafeTensorSource counting(const std::string& name, std::vector<int64_t> shape, float start) {
    return {name, std::move(shape), [start](int64_t first, int64_t n, float* to) {
                for (int64_t i = 0; i < n; i++) to[i] = start + float(first + i);
            }};
}
}  // namespace

TEST(safetensors, comes_back_whole_or_in_several_files) {
    for (int64_t most : {int64_t(1) << 30, int64_t(100)}) {
        const Folder dir;
        safetensors_write(dir.path,
                          {counting("a", {3, 5}, 0.5f), counting("b", {}, 7),
                           counting("c", {0, 2}, 0), counting("long", {300}, -3)},
                          Dtype::F32, most);
        EXPECT_EQ(fs::exists(dir.path + "/model.safetensors"), most > 100);
        const SafeTensors file(dir.path);
        ASSERT_EQ(file.tensors().size(), 4u);
        EXPECT_EQ(file.tensors().at("a").shape, (std::vector<int64_t>{3, 5}));
        EXPECT_EQ(file.tensors().at("b").count(), 1);
        EXPECT_EQ(file.tensors().at("c").count(), 0);
        std::vector<float> x(100);
        file.read("long", 150, 100, x.data());
        for (int i = 0; i < 100; i++) EXPECT_EQ(x[size_t(i)], float(147 + i));
        file.read("a", 14, 1, x.data());
        EXPECT_EQ(x[0], 14.5f);
        EXPECT_THROW(file.read("a", 14, 2, x.data()), Error);
    }
}

TEST(safetensors, narrow_types_are_exact) {
    const Folder dir;
    safetensors_write(dir.path,
                      {{"x",
                        {3},
                        [](int64_t, int64_t, float* to) {
                            // A tie, a large one, and one that is nearer to the larger neighbour.
                            to[0] = 1.00390625f, to[1] = -3e38f, to[2] = 1.005859375f;
                        }}},
                      Dtype::BF16);
    float x[3];
    SafeTensors(dir.path).read("x", 0, 3, x);
    EXPECT_EQ(x[2], 1.0078125f);
    EXPECT_EQ(x[0], 1.f);
    EXPECT_NEAR(x[1], -3e38, 1e36);
    // Every half-precision number against the hardware's or the compiler's conversion.
    std::string data(65536 * 2, 0);
    for (int i = 0; i < 65536; i++)
        data[size_t(2 * i)] = char(i), data[size_t(2 * i + 1)] = char(i >> 8);
    const std::string path = dir.write(
        "half.safetensors",
        file_of(R"({"h":{"dtype":"F16","shape":[65536],"data_offsets":[0,131072]}})", data));
    std::vector<float> h(65536);
    SafeTensors(path).read("h", 0, 65536, h.data());
    for (int i = 0; i < 65536; i++) {
        const int exponent = i >> 10 & 31, fraction = i & 1023;
        double expected = exponent == 0    ? std::ldexp(fraction, -24)
                          : exponent == 31 ? (fraction ? NAN : INFINITY)
                                           : std::ldexp(1024 + fraction, exponent - 25);
        if (i & 0x8000) expected = -expected;
        if (std::isnan(expected))
            EXPECT_TRUE(std::isnan(h[size_t(i)])) << i;
        else
            EXPECT_EQ(h[size_t(i)], float(expected)) << i;
    }
}

TEST(safetensors, what_breaks_the_format_is_refused_by_name) {
    const Folder dir;
    const std::string four(4, 0), eight(8, 0);
    const auto refuses = [&](const std::string& header, const std::string& data,
                             const std::string& word) {
        const std::string error = error_of(dir.write("x.safetensors", file_of(header, data)));
        EXPECT_NE(error.find(word), std::string::npos) << header << "\n" << error;
    };
    const std::string good = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
    EXPECT_EQ(error_of(dir.write("x.safetensors", file_of(good, four))), "");
    refuses(good, eight, "behind the last tensor");
    refuses(good, "", "bytes outside the file");
    refuses("[]", "", "no JSON object");
    refuses("{", "", "no valid JSON");
    refuses(std::string(5000, '['), "", "nested too deep");
    refuses(R"({"a":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}})", four, "unknown dtype");
    refuses(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", four, "size and shape");
    refuses(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", four, "whole number");
    refuses(R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", four, "whole number");
    refuses(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", four, "outside");
    refuses(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}})", four,
            "impossible shape");
    refuses(R"({"a":{"dtype":"F32","shape":[1]}})", four, "data_offsets");
    refuses(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", eight, "a hole");
    refuses(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
            R"("b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
            four, "overlap");
    std::string huge = file_of(good, four);
    huge[7] = 1;  // 2^56 bytes of header
    EXPECT_NE(error_of(dir.write("x.safetensors", huge)).find("impossible length"),
              std::string::npos);
    EXPECT_NE(error_of(dir.write("x.safetensors", "short")).find("no safetensors"),
              std::string::npos);
}

TEST(safetensors, an_index_names_files_beside_itself_only) {
    const Folder dir;
    dir.write("m.safetensors",
              file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "1234"));
    const auto error = [&](const std::string& json) {
        return error_of(dir.write("model.safetensors.index.json", json));
    };
    EXPECT_EQ(error(R"({"weight_map":{"a":"m.safetensors"}})"), "");
    for (const char* name : {"../m.safetensors", "/etc/passwd", "..", "", "sub/m.safetensors"})
        EXPECT_NE(error(R"({"weight_map":{"a":")" + std::string(name) + R"("}})").find("beside"),
                  std::string::npos)
            << name;
    EXPECT_NE(error(R"({"weight_map":{"b":"m.safetensors"}})").find("not where the index says"),
              std::string::npos);
    EXPECT_NE(error(R"({})").find("weight_map"), std::string::npos);
}

// Hugging Face's cache: a snapshot is links to files that lie elsewhere.
TEST(safetensors, files_may_be_links) {
    for (int64_t most : {int64_t(1) << 30, int64_t(100)}) {
        const Folder dir;
        const fs::path blobs = fs::path(dir.path) / "blobs", snapshot = fs::path(dir.path) / "s";
        fs::create_directories(blobs), fs::create_directories(snapshot);
        safetensors_write(blobs, {counting("a", {3, 5}, 0.5f), counting("long", {300}, -3)},
                          Dtype::F32, most);
        for (const auto& entry : fs::directory_iterator(blobs))
            fs::create_symlink("../blobs" / entry.path().filename(),
                               snapshot / entry.path().filename());
        const SafeTensors file(snapshot);
        float x[2];
        file.read("long", 298, 2, x);
        EXPECT_EQ(x[1], 296);
        EXPECT_EQ(file.tensors().size(), 2u);
    }
    const Folder dir;
    fs::create_symlink("/dev/zero", dir.path + "/model.safetensors");
    EXPECT_NE(error_of(dir.path).find("not a regular file"), std::string::npos);
}

// Any one byte changed: an error or the same tensors, never anything else.
TEST(safetensors, random_damage_never_escapes) {
    const Folder dir;
    safetensors_write(dir.path, {counting("abc", {7}, 1), counting("d", {2, 3}, 2)}, Dtype::F32);
    const std::string path = dir.path + "/model.safetensors";
    std::ifstream in(path, std::ios::binary);
    const std::string good((std::istreambuf_iterator<char>(in)), {});
    std::mt19937 random(1);
    int opened = 0;
    for (int round = 0; round < 500; round++) {
        std::string bad = good;
        bad[random() % bad.size()] ^= char(1 << random() % 8);
        if (round % 3 == 0) bad.resize(random() % bad.size());
        if (round % 5 == 0) bad.insert(random() % bad.size(), 1, char(random()));
        opened += error_of(dir.write("bad.safetensors", bad)).empty();
    }
    EXPECT_GT(opened, 0);  // damage to data or names is not the format's to notice
}
