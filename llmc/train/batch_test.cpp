// Which samples a step consumes: those of one rank, whatever the number of ranks is and however it
// changes, over the ends of epochs too. None is lost, none comes twice in an epoch.
#include "llmc/train/batch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <numeric>

#include "llmc/ops/classifier.h"

namespace {

constexpr int kT = 3;

// Two shards whose every token is its place: samples are told apart by their first token.
class PlacesOnDisk {
  public:
    explicit PlacesOnDisk(int samples) {
        const int first = samples / 3, sizes[] = {first, samples - first};
        uint16_t next = 0;
        for (int s = 0; s < 2; s++) {
            std::vector<int32_t> header(256);
            const int tokens = sizes[s] * kT + 1 + (s ? kT - 1 : 0);  // the second one has a rest
            header[0] = kTokenMagic16, header[1] = kTokenVersion16, header[2] = tokens;
            std::vector<uint16_t> ids(static_cast<size_t>(tokens));
            std::iota(ids.begin(), ids.end(), next);
            next = uint16_t(next + tokens);
            std::ofstream file(path(s), std::ios::binary);
            file.write(reinterpret_cast<const char*>(header.data()), 1024);
            file.write(reinterpret_cast<const char*>(ids.data()), 2 * tokens);
        }
        files = TokenFiles::open(testing::TempDir() + "batch_test_?.bin", 65536);
    }
    ~PlacesOnDisk() {
        for (int s = 0; s < 2; s++) std::remove(path(s).c_str());
    }
    TokenFiles files;

  private:
    static std::string path(int s) {
        return testing::TempDir() + "batch_test_" + std::to_string(s) + ".bin";
    }
};

// The first tokens of the samples of one step, put together from what the ranks read.
std::vector<int> consumed(const TokenFiles& files, int64_t first, int micro_batches, int B,
                          int ranks) {
    std::vector<int> ids;
    int count = 0;
    for (int r = 0; r < ranks; r++) {
        const Batch b = batch_read(files, 5, first, micro_batches, B, kT, r, ranks);
        const int64_t one = int64_t(B) * kT;
        EXPECT_EQ(b.micro_batches, (micro_batches + ranks - 1) / ranks);
        EXPECT_EQ(b.tokens.size(), size_t(b.micro_batches * one));
        EXPECT_EQ(b.targets.size(), b.tokens.size());
        // What is not full is empty, and comes last.
        EXPECT_EQ(b.valid % one, 0);
        count += int(b.valid / one);
        for (int64_t i = 0; i < b.micro_batches * one; i++)
            EXPECT_EQ(b.targets[size_t(i)] == kIgnoreTarget, i >= b.valid);
        for (int64_t i = 0; i < b.valid; i += kT) ids.push_back(b.tokens[size_t(i)]);
    }
    EXPECT_EQ(count, micro_batches);
    return ids;
}

}  // namespace

TEST(batch, the_same_samples_while_the_number_of_ranks_changes) {
    const PlacesOnDisk disk(10007);
    const int micro_batches = 24, B = 3, per_step = micro_batches * B;
    ASSERT_EQ(disk.files.samples(kT), 10007);
    const int steps = 3 * 10007 / per_step + 2;  // into the fourth epoch
    std::vector<int> of_one, changing;
    for (int step = 0; step < steps; step++) {
        const int64_t first = int64_t(step) * per_step;
        // 4 -> 2 -> 3 -> 5 -> ..., 5 and 7 have unequal parts
        constexpr int ranks[] = {4, 2, 3, 5, 1, 7, 8};
        const auto one = consumed(disk.files, first, micro_batches, B, 1);
        const auto many = consumed(disk.files, first, micro_batches, B, ranks[step % 7]);
        of_one.insert(of_one.end(), one.begin(), one.end());
        changing.insert(changing.end(), many.begin(), many.end());
    }
    EXPECT_EQ(of_one, changing);

    // Each epoch is every sample once, in another order than the one before; none is cut off, since
    // a step takes the end of one epoch and the beginning of the next.
    std::vector<int> before;
    for (int epoch = 0; epoch < 3; epoch++) {
        std::vector<int> ids(changing.begin() + epoch * 10007,
                             changing.begin() + (epoch + 1) * 10007);
        EXPECT_NE(ids, before);
        before = ids;
        std::sort(ids.begin(), ids.end());
        EXPECT_EQ(std::adjacent_find(ids.begin(), ids.end()), ids.end()) << "one comes twice";
        EXPECT_EQ(ids.size(), 10007u);
    }
}

TEST(batch, data_smaller_than_a_step_comes_round_within_it) {
    const PlacesOnDisk disk(5);
    for (int ranks : {1, 2, 3, 4}) {
        std::vector<int> ids = consumed(disk.files, 3, 12, 1, ranks);  // of epochs 0, 1 and 2
        EXPECT_EQ(ids, consumed(disk.files, 3, 12, 1, 1));
        std::vector<int> whole(ids.begin() + 2, ids.begin() + 7);  // epoch 1
        std::sort(whole.begin(), whole.end());
        EXPECT_EQ(std::adjacent_find(whole.begin(), whole.end()), whole.end());
    }
}
