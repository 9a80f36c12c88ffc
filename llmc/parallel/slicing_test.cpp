// Every element of every tensor has one owner, whatever the sizes, ranks and buckets.
#include "llmc/parallel/slicing.h"

#include <gtest/gtest.h>

#include <numeric>

namespace {
ParamLayout odd_layout() {
    ParamLayout layout;
    for (std::vector<int64_t> sizes :
         {std::vector<int64_t>{37 * 15, 11 * 15}, {15, 675, 1}, {13}}) {
        ParamBlock b{"block", {}, layout.size, 0};
        for (int64_t n : sizes) {
            b.tensors.push_back({"t", {n}, n + (n == 37 * 15 ? 100 : 0), b.size, true, 0, 0});
            b.size += (b.tensors.back().size + kTensorAlign - 1) / kTensorAlign * kTensorAlign;
            layout.count += n;
        }
        layout.size += b.size;
        layout.blocks.push_back(b);
    }
    return layout;
}
}  // namespace

TEST(slicing, every_element_has_one_owner) {
    const ParamLayout layout = odd_layout();
    for (int ranks : {1, 2, 3, 4, 5, 7, 8, 64})
        for (bool within_blocks : {false, true})
            for (double bytes : {1., 1024., 7 * 1024., 25e6}) {
                const Slicing s = slicing(layout, ranks, within_blocks, bytes, 8);
                std::vector<int> owners(size_t(layout.size), 0);
                int64_t elements = 0;
                for (int r = 0; r < ranks; r++) {
                    std::vector<int> used(size_t(s.local_size), 0);
                    for (const Range& range : owned_ranges(s, r)) {
                        EXPECT_EQ(range.first % kTensorAlign, 0);
                        for (int64_t i = 0; i < range.n; i++) {
                            owners[size_t(range.first + i)]++;
                            used.at(size_t(range.local + i))++;
                        }
                    }
                    for (int u : used) ASSERT_LE(u, 1);
                    for (const TensorPart& p : tensor_parts(layout, owned_ranges(s, r), false)) {
                        elements += p.n;
                        EXPECT_LE(p.first + p.n, p.tensor->count());
                    }
                }
                for (int o : owners) ASSERT_EQ(o, 1);
                EXPECT_EQ(elements, layout.count);
            }
}

// --bucket-mb has no upper limit; the first bucket keeps its own.
TEST(slicing, a_bucket_of_any_size_is_at_most_the_whole) {
    const ParamLayout layout = odd_layout();
    const size_t expected = slicing(layout, 3, false, 1e9, 8).buckets.size();
    for (const double bytes : {1e18, 1e19, 1e30, 1e308})
        EXPECT_EQ(slicing(layout, 3, false, bytes, 8).buckets.size(), expected) << bytes;
}

TEST(slicing, buckets_come_in_the_order_of_backward_and_keep_their_size) {
    const ParamLayout layout = odd_layout();
    for (bool within_blocks : {false, true}) {
        const Slicing s = slicing(layout, 3, within_blocks, 1024, 8);
        int64_t end = layout.size;
        for (const Bucket& b : s.buckets) {
            EXPECT_EQ(b.first + b.n, end);
            EXPECT_LE(b.n * 8, 1024);
            end = b.first;
            if (!within_blocks) continue;
            for (const ParamBlock& block : layout.blocks)
                EXPECT_FALSE(b.first < block.offset && b.first + b.n > block.offset);
        }
        EXPECT_EQ(end, 0);
    }
}

TEST(slicing, the_slice_of_one_rank_is_the_whole) {
    const ParamLayout layout = odd_layout();
    const Slicing s = slicing(layout, 1, false, 1024, 8);
    EXPECT_EQ(s.local_size, layout.size);
    for (const Range& r : owned_ranges(s, 0)) EXPECT_EQ(r.local, r.first);
}
