#include "llmc/core/hash.h"

#include <gtest/gtest.h>

#include <vector>

TEST(hash, digest_of_pieces_is_digest_of_the_whole) {
    const std::string text = "the quick brown fox";
    Digest d;
    d.update(text.data(), 7);
    d.update(text.data() + 7, text.size() - 7);
    EXPECT_EQ(d.hex(), digest_bytes(text.data(), text.size()));
    EXPECT_NE(d.hex(), digest_bytes(text.data(), text.size() - 1));
}

TEST(hash, tensor_hash_does_not_depend_on_the_cut_but_on_bits_and_places) {
    std::vector<float> x(1000);
    for (int i = 0; i < 1000; i++) x[i] = 0.1f * float(i % 17);
    const TensorHash whole = tensor_hash(x.data(), 1000, 0);
    TensorHash sum = tensor_hash(x.data() + 371, 629, 371);
    sum.add(tensor_hash(x.data(), 371, 0));
    EXPECT_EQ(sum, whole);
    std::swap(x[3], x[4]);
    EXPECT_NE(tensor_hash(x.data(), 1000, 0), whole);
    std::swap(x[3], x[4]);
    x[0] = -0.f;  // another sign of zero is another value
    EXPECT_NE(tensor_hash(x.data(), 1000, 0), whole);
}
