// Decoding with a cache gives what the full forward pass gives.
#include "llmc/model/decode.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "llmc/core/rng.h"
#include "llmc/model/gpt.h"
#include "llmc/model/tiny_models.h"

TEST(decode, cached_logits_equal_the_full_forward) {
    for (const ModelConfig& c : tiny_models()) {
        auto comm = comm_self();
        Memory<CpuStream> memory{CpuStream{}};
        Shards<float, CpuStream> shards(param_layout(c), {}, *comm, memory);
        for (TensorSlice& s : shards.master_slices()) {
            param_init(s.data, *s.tensor, 0, s.count, 1);
            for (int64_t i = 0; i < s.count; i++) s.data[i] *= s.tensor->decay ? 10.f : 1.f;
        }
        const int T = 11;
        std::vector<int> tokens;
        for (int t = 0; t < T; t++) tokens.push_back(int(random_bits(5, 0, uint64_t(t)) % 37u));

        // Reference: logits of every position, from the head's input.
        auto g = gpt_create<float>(c, 1, T, Recompute::None, true, memory);
        gpt_forward(g, shards, tokens.data());
        const float* base = shards.params_acquire(0);
        const ParamBlock& head = shards.layout().blocks.back();
        const float* own = head_params(head, base + head.offset).lmw;
        const float* lmw = own ? own : base;
        auto expected = [&](int t, int v) {
            double sum = 0;
            for (int k = 0; k < c.C; k++)
                sum += double(g.acts.lnf[t * c.C + k]) * double(lmw[v * c.C + k]);
            return sum;
        };

        // Chunks of every kind: one token, several, more than the scratch holds.
        for (const std::vector<int>& cuts : {std::vector<int>{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
                                             std::vector<int>{4, 1, 6}, std::vector<int>{11}}) {
            Decoder<float, CpuStream> decoder(c, T, 4, memory);
            int t = 0;
            for (int n : cuts) {
                const float* logits = decoder.feed(shards, tokens.data() + t, n);
                t += n;
                for (int v = 0; v < c.V; v++)
                    // fp32 sums of 15 to 23 terms through two layers: some 1e-6 relative.
                    ASSERT_NEAR(logits[v], expected(t - 1, v),
                                2e-5 * (1 + std::abs(expected(t - 1, v))))
                        << c.name;
            }
            EXPECT_EQ(decoder.used(), T);
        }
    }
}
