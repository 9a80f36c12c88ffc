// rope.h on CUDA against the CPU.
#include "llmc/ops/rope.h"

#include "llmc/ops/cuda_test.cuh"

template <class Elem>
struct rope_cuda : testing::Test {};
TYPED_TEST_SUITE(rope_cuda, ElemTypes);

TYPED_TEST(rope_cuda, agrees_with_the_cpu_and_leaves_values) {
    using Elem = TypeParam;
    struct Size {
        int B, T, H, KV, HS;
    };
    for (const auto [B, T, H, KV, HS] :
         {Size{1, 1, 1, 1, 2}, {2, 5, 3, 1, 6}, {1, 9, 4, 2, 64}, {2, 3, 2, 2, 128}})
        for (RopePairs pairs : {RopePairs::Half, RopePairs::Interleaved})
            for (const auto& [direction, shift] : {std::pair(1, 0), {1, 1}, {-1, 0}}) {
                SCOPED_TRACE(str("B ", B, ", T ", T, ", H ", H, ", KV ", KV, ", HS ", HS,
                                 ", pairs ", int(pairs), ", direction ", direction, ", shift ",
                                 shift));
                const int width = (H + 2 * KV) * HS;
                const auto qkv = random_elems<Elem>(size_t(B) * T * width, "qkv");
                Floats expected = widen(qkv), table(size_t(T) * HS);
                const Floats before = expected;
                rope_table(table.data(), 3, T, HS, 10000, {});
                rope(expected.data(), table.data(), B, T, H, KV, HS, pairs, direction, kCpu);
                Device<Elem> gqkv(qkv, size_t(shift));
                const Device<float> gtable(table);
                rope<Elem>(gqkv, gtable, B, T, H, KV, HS, pairs, direction, kCuda);
                // Two products and a sum on either side, of a pair's two elements.
                const size_t size = size_t(HS), turned = size_t(H + KV);
                expect_close("qkv", gqkv.host(), expected, [&](size_t i) {
                    const size_t head = i / size, k = i % size;
                    if (head % (width / size) >= turned) return 0.0;
                    const size_t partner = pairs == RopePairs::Half ? (k + size / 2) % size : k ^ 1;
                    const double pair =
                        std::fabs(before[i]) + std::fabs(before[head * size + partner]);
                    return 4 * kEps * pair + kRounding<Elem> * std::fabs(expected[i]);
                });
            }
}
