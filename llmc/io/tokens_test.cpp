// llmc/io/tokens_test.cpp: token files are read exactly or refused; the order is a permutation.
#include "llmc/io/tokens.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <vector>

#include "llmc/core/check.h"
#include "llmc/parallel/comm_testing.h"

namespace fs = std::filesystem;

namespace {

class Tokens : public ::testing::Test {
  protected:
    void SetUp() override {
        dir = fs::path(testing::TempDir()) /
              (std::string("tokens_") +
               testing::UnitTest::GetInstance()->current_test_info()->name());
        fs::remove_all(dir);
        fs::create_directories(dir);
    }
    void TearDown() override { fs::remove_all(dir); }

    // Writes a file by hand, from the format's description and not through our writer.
    std::string write(const std::string& name, std::vector<int32_t> head,
                      const std::vector<uint32_t>& ids, int width = 2) const {
        head.resize(256);
        std::ofstream out(dir / name, std::ios::binary);
        out.write(reinterpret_cast<const char*>(head.data()), 1024);
        for (uint32_t id : ids) out.write(reinterpret_cast<const char*>(&id), width);
        return (dir / name).string();
    }
    std::string write16(const std::string& name, const std::vector<uint32_t>& ids) const {
        return write(name, {20240520, 1, int32_t(ids.size())}, ids, 2);
    }
    std::string write32(const std::string& name, const std::vector<uint32_t>& ids) const {
        return write(name, {20240801, 7, int32_t(ids.size())}, ids, 4);
    }
    std::string all() const { return (dir / "*.bin").string(); }

    fs::path dir;
};

std::vector<uint32_t> count_up(uint32_t first, size_t n) {
    std::vector<uint32_t> ids(n);
    std::iota(ids.begin(), ids.end(), first);
    return ids;
}

// Opening must fail with this code and with each text in its message.
void expect_refused(const std::string& pattern, int64_t vocab, Exit code,
                    const std::vector<std::string>& texts) {
    try {
        TokenFiles::open(pattern, vocab);
        ADD_FAILURE() << "opened " << pattern;
    } catch (const Error& e) {
        EXPECT_EQ(int(e.code), int(code)) << e.what();
        for (const std::string& text : texts)
            EXPECT_NE(std::string(e.what()).find(text), std::string::npos)
                << "no '" << text << "' in: " << e.what();
    }
}

// Ids are checked by ranges of the whole that ascend with the rank: who reads what, and all of it.
TEST_F(Tokens, ranks_share_the_check_of_ids) {
    const auto error = [](const std::string& pattern, Comm& comm) -> std::string {
        try {
            TokenFiles::open({pattern}, 10, comm);
            return "";
        } catch (const Error& e) {
            return str(int(e.code), " ", e.what());
        }
    };
    // Sizes that no number of ranks divides; one bad id at each place in turn.
    const std::vector<size_t> sizes = {5, 0, 1, 11};
    for (const int ranks : {1, 2, 3, 5, 20})
        for (size_t shard = 0; shard < sizes.size(); shard++)
            for (size_t bad = 0; bad < sizes[shard]; bad++) {
                for (size_t i = 0; i < sizes.size(); i++) {
                    std::vector<uint32_t> ids(sizes[i], 9);
                    if (i == shard) ids[bad] = 10;
                    i % 2 ? write32(str(i, ".bin"), ids) : write16(str(i, ".bin"), ids);
                }
                EXPECT_TRUE(on_ranks(ranks, [&](Comm& comm) {
                    const std::string said = error(all(), comm);
                    EXPECT_EQ(said.substr(0, 1), "3") << said;
                    EXPECT_NE(said.find(str(shard, ".bin; found id 10 at")), std::string::npos)
                        << said;
                    EXPECT_NE(said.find(str("(token ", bad, ")")), std::string::npos) << said;
                }));
            }
    // Each rank has files of its own, with one bad id at a place that the other rank looks at.
    for (const int rank : {0, 1}) {
        fs::create_directory(dir / str(rank));
        std::vector<uint32_t> ids(8, 9);
        ids[rank == 0 ? 4 : 3] = 10;
        write16(str(rank, "/x.bin"), ids);
    }
    EXPECT_TRUE(on_ranks(2, [&](Comm& comm) {
        EXPECT_EQ(error((dir / str(comm.rank(), "/x.bin")).string(), comm), "");
    }));
}

TEST_F(Tokens, samples_are_windows_inside_shards_and_shards_come_by_name) {
    write16("b.bin", count_up(100, 9));    // 2 windows of 4 + 1, token 108 starts no third
    write32("a.bin", count_up(70000, 8));  // 1 window, 70005..70007 are left over
    write16("c.bin", {7});                 // a single token has no target
    write16("d.bin", {});
    const TokenFiles files = TokenFiles::open(all(), 80000);
    EXPECT_EQ(files.tokens(), 18);
    ASSERT_EQ(files.samples(4), 3);
    for (const auto& [sample, first] : {std::pair{0, 70000}, {1, 100}, {2, 104}}) {
        int x[4], y[4];
        files.read_sample(sample, 4, x, y);
        for (int i = 0; i < 4; i++) {
            EXPECT_EQ(x[i], first + i);
            EXPECT_EQ(y[i], first + i + 1);
        }
    }
    EXPECT_EQ(files.samples(8), 1);
    EXPECT_EQ(files.samples(9), 0);
    EXPECT_EQ(files.samples(1), 7 + 8);
}

TEST_F(Tokens, patterns_may_overlap_and_files_may_move_in_memory) {
    write16("x_train_000000.bin", count_up(0, 5));
    write16("x_train_000001.bin", count_up(5, 5));
    TokenFiles files = TokenFiles::open({(dir / "{*_000000.bin,x_train*.bin}").string(), all()},
                                        100, *comm_self());
    EXPECT_EQ(files.tokens(), 10);
    TokenFiles moved = std::move(files);
    files = std::move(moved);
    int x, y;
    files.read_sample(4, 1, &x, &y);
    EXPECT_EQ(x, 5);
    EXPECT_EQ(y, 6);
}

TEST_F(Tokens, sizes_over_2_gib_need_no_more_than_an_offset) {
    // Sparse: 1.2e9 tokens, 2.4 GB, of which three places exist on the disk.
    const int64_t n = 1'200'000'000;
    const std::string path = write("big.bin", {20240520, 1, int32_t(n)}, {});
    fs::resize_file(path, 1024 + 2 * n);
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    const auto put = [&](int64_t token, uint16_t id) {
        file.seekp(1024 + 2 * token);
        file.write(reinterpret_cast<const char*>(&id), 2);
        file.flush();
    };
    put(n - 2, 41);
    put(n - 1, 42);
    {
        const TokenFiles files = TokenFiles::open(path, 65536);  // every uint16: no scan
        EXPECT_EQ(files.tokens(), n);
        ASSERT_EQ(files.samples(1), n - 1);
        int x, y;
        files.read_sample(n - 2, 1, &x, &y);
        EXPECT_EQ(x, 41);
        EXPECT_EQ(y, 42);
    }
    put(1'150'000'000, 1000);
    expect_refused(path, 1000, Exit::Damaged, {path, "byte offset 2300001024", "id 1000"});
}

TEST_F(Tokens, ids_outside_the_vocabulary_are_named_by_file_and_offset) {
    const std::string a = write16("a.bin", {1, 2, 256, 0}), b = write16("b.bin", {3, 257, 300});
    TokenFiles::open(a, 257);
    expect_refused(all(), 257, Exit::Damaged, {b, "id 257", "byte offset 1026", "below 257"});
    const std::string c = write32("c.bin", {0, 0x80000000u});
    expect_refused(c, 128256, Exit::Damaged, {c, "id 2147483648", "byte offset 1028"});
    TokenFiles::open(write16("d.bin", {65535}), 65536);
    expect_refused((dir / "d.bin").string(), 65535, Exit::Damaged, {"id 65535", "offset 1024"});
}

TEST_F(Tokens, an_id_that_goes_bad_after_the_scan_is_still_caught) {
    const std::string path = write16("a.bin", {1, 2, 3, 4});
    const TokenFiles files = TokenFiles::open(path, 10);
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(1024 + 6);
    file.put(99);
    file.close();
    int x[3], y[3];
    EXPECT_THROW(files.read_sample(0, 3, x, y), Error);
}

TEST_F(Tokens, broken_files_get_one_clear_error) {
    const std::string bin = (dir / "x.bin").string();
    expect_refused((dir / "none*.bin").string(), 10, Exit::Usage, {"no token files", "none*.bin"});
    expect_refused(bin, 10, Exit::Usage, {"no token files", bin});
    expect_refused(dir.string(), 10, Exit::Usage, {"a directory", dir.string()});
    write16("x.bin", {1});
    EXPECT_THROW(TokenFiles::open({bin, bin + "2"}, 10, *comm_self()), Error);

    std::ofstream(bin).close();
    expect_refused(bin, 10, Exit::Damaged, {bin, "0 bytes", "1024"});
    std::ofstream(bin) << std::string(1023, 'x');
    expect_refused(bin, 10, Exit::Damaged, {"1023 bytes"});
    std::ofstream(bin) << "<!DOCTYPE html>" << std::string(4000, ' ');
    expect_refused(bin, 10, Exit::Damaged, {"'<!DO'", "magic", "20240520", "4015 bytes"});

    write("x.bin", {20240520, 2, 1}, {1});
    expect_refused(bin, 10, Exit::Damaged, {"version 2", "expected version 1"});
    write("x.bin", {20240801, 1, 1}, {1}, 4);
    expect_refused(bin, 10, Exit::Damaged, {"version 1", "expected version 7"});
    write("x.bin", {20240520, 1, 3}, {1, 2});
    expect_refused(bin, 10, Exit::Damaged, {"1028 bytes", "1030 bytes"});
    write("x.bin", {20240520, 1, 1}, {1, 2});
    expect_refused(bin, 10, Exit::Damaged, {"1028 bytes", "1026 bytes"});
    write("x.bin", {20240520, 1, -1}, {1});
    expect_refused(bin, 10, Exit::Damaged, {"-1 tokens"});
    write16("x.bin", {});
    expect_refused(bin, 10, Exit::Damaged, {"no tokens"});
    write16("x.bin", {1});
    expect_refused(bin, 0, Exit::Usage, {"vocabulary"});
}

// Ids 10, 11, ... of which those in `trained` are trained on.
void mask_append(const std::string& path, size_t n, const std::vector<size_t>& trained) {
    std::string mask((n + 7) / 8, '\0');
    for (size_t i : trained) mask[i / 8] = char(mask[i / 8] | 1 << i % 8);
    std::ofstream(path, std::ios::binary | std::ios::app) << mask;
}

TEST_F(Tokens, a_mask_takes_targets_away) {
    const std::string a = write("a.bin", {20240520, 101, 11}, count_up(10, 11), 2);
    mask_append(a, 11, {0, 2, 5, 9, 10});
    write16("b.bin", count_up(50, 6));  // no mask: all trained
    const std::string c = write("c.bin", {20240801, 107, 8}, count_up(70000, 8), 4);
    mask_append(c, 8, {7});
    const TokenFiles files = TokenFiles::open(all(), 80000);
    EXPECT_TRUE(files.shards()[0].masked());
    EXPECT_FALSE(files.shards()[1].masked());
    ASSERT_EQ(files.samples(5), 2 + 1 + 1);
    const auto targets = [&](int64_t sample) {
        std::vector<int> x(5), y(5);
        files.read_sample(sample, 5, x.data(), y.data());
        EXPECT_EQ(x[4] + (sample == 2 ? 0 : 1), sample == 0   ? 15
                                                : sample == 1 ? 20
                                                : sample == 2 ? 54
                                                              : 70005);
        return y;
    };
    EXPECT_EQ(targets(0), (std::vector<int>{-1, 12, -1, -1, 15}));
    EXPECT_EQ(targets(1), (std::vector<int>{-1, -1, -1, 19, 20}));
    EXPECT_EQ(targets(2), (std::vector<int>{51, 52, 53, 54, 55}));
    EXPECT_EQ(targets(3), (std::vector<int>{-1, -1, -1, -1, -1}));
}

TEST_F(Tokens, a_mask_is_whole_or_refused) {
    const std::string a = write("a.bin", {20240520, 101, 11}, count_up(10, 11), 2);
    expect_refused(a, 100, Exit::Damaged, {"1046 bytes", "1048 bytes", "and the mask"});
    mask_append(a, 8, {});
    expect_refused(a, 100, Exit::Damaged, {"1047 bytes"});
    mask_append(a, 8, {3});  // bit 11: behind the last token
    expect_refused(a, 100, Exit::Damaged, {"bits behind its last token"});
    const std::string b = write("b.bin", {20240520, 107, 8}, count_up(10, 8), 2);
    mask_append(b, 8, {});
    expect_refused(b, 100, Exit::Damaged, {"version 107", "101 with a mask"});
    const std::string c = write("c.bin", {20240520, 1, 8}, count_up(10, 8), 2);
    mask_append(c, 8, {});
    expect_refused(c, 100, Exit::Damaged, {"1041 bytes"});
}

TEST(SampleOrderTest, each_epoch_visits_each_sample_once) {
    for (int64_t n : {1, 2, 3, 5, 63, 64, 65, 1000, 4097, 10007}) {
        const SampleOrder order{1234, n};
        for (int64_t epoch : {0, 1, 7}) {
            std::vector<int> seen(size_t(n), 0);
            for (int64_t i = 0; i < n; i++) {
                const int64_t g = epoch * n + i, sample = order.sample(g);
                ASSERT_GE(sample, 0);
                ASSERT_LT(sample, n);
                seen[size_t(sample)]++;
            }
            EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), n) << "n " << n;
        }
    }
    // Far beyond what can be enumerated: results stay in range and differ.
    const int64_t huge = int64_t(1) << 40;
    EXPECT_NE(shuffled_index(1, 0, huge - 1, huge), shuffled_index(1, 0, huge - 2, huge));
    EXPECT_LT(shuffled_index(1, 0, huge - 1, huge), huge);
}

TEST(SampleOrderTest, the_order_is_fixed_for_ever) {
    // A change here breaks the resumption of every run in the world.
    std::vector<int64_t> got;
    for (int i = 0; i < 8; i++) got.push_back(shuffled_index(42, 1, i, 10007));
    EXPECT_EQ(got, (std::vector<int64_t>{1262, 3193, 8587, 5180, 3553, 203, 8082, 6748}));
}

TEST(SampleOrderTest, shuffles_well) {
    const int64_t n = 10007;
    std::vector<double> a(n), b(n), c(n);
    for (int64_t i = 0; i < n; i++) {
        a[size_t(i)] = double(shuffled_index(1, 0, i, n));
        b[size_t(i)] = double(shuffled_index(1, 1, i, n));
        c[size_t(i)] = double(shuffled_index(2, 0, i, n));
    }
    // Correlations of random permutations have standard deviation 1/sqrt(n) = 0.01: five of these.
    const double mean = (double(n) - 1) / 2, var = (double(n) * n - 1) / 12;
    const auto correlation = [&](auto x, auto y) {
        double sum = 0;
        for (int64_t i = 0; i < n; i++) sum += (x(i) - mean) * (y(i) - mean);
        return sum / double(n) / var;
    };
    const auto at = [&](const std::vector<double>& v, int64_t shift) {
        return [&v, shift, n](int64_t i) { return v[size_t((i + shift) % n)]; };
    };
    const auto index = [](int64_t i) { return double(i); };
    EXPECT_NEAR(correlation(at(a, 0), index), 0, 0.05);
    for (int64_t lag : {1, 2, 64, 128}) EXPECT_NEAR(correlation(at(a, 0), at(a, lag)), 0, 0.05);
    EXPECT_NEAR(correlation(at(a, 0), at(b, 0)), 0, 0.05);  // epochs
    EXPECT_NEAR(correlation(at(a, 0), at(c, 0)), 0, 0.05);  // seeds
    // Samples that stay where they are: about one (Poisson), hardly ever more than eight.
    int fixed = 0;
    for (int64_t i = 0; i < n; i++) fixed += a[size_t(i)] == double(i);
    EXPECT_LE(fixed, 8);
}

TEST(SampleOrderTest, tiny_sets_reach_every_order_equally_often) {
    // Four samples have 24 orders; 24,000 epochs give 1000 of each. Chi-square with 23 degrees of
    // freedom has mean 23 and standard deviation sqrt(46) = 6.8: five of these above.
    std::vector<int> count(256);
    const int epochs = 24000;
    for (int e = 0; e < epochs; e++) {
        int code = 0;
        for (int i = 0; i < 4; i++) code = code * 4 + int(shuffled_index(3, e, i, 4));
        count[size_t(code)]++;
    }
    double chi2 = 0;
    int orders = 0;
    for (int k : count) {
        if (k == 0) continue;
        orders++;
        chi2 += (k - 1000.0) * (k - 1000.0) / 1000.0;
    }
    EXPECT_EQ(orders, 24);
    EXPECT_LT(chi2, 23 + 5 * 6.8);
}

}  // namespace
