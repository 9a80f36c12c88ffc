// embedding.h on CUDA against the CPU. Both add in the same order, so in fp32 the bits are equal.
#include "llmc/ops/embedding.h"

#include "llmc/ops/cuda_test.cuh"

template <class Elem>
struct embedding_cuda : testing::Test {};
TYPED_TEST_SUITE(embedding_cuda, ElemTypes);

namespace {

struct Size {
    int B, T, C, V;
};
// Odd and ragged, GPT-2-like, few tokens (long buckets), many tokens (short ones).
constexpr Size kSizes[] = {
    {1, 1, 1, 1}, {2, 3, 5, 7}, {3, 50, 64, 3}, {2, 33, 131, 1000}, {1, 300, 8, 2}};

}  // namespace

TYPED_TEST(embedding_cuda, forward_has_the_bits_of_the_cpu) {
    using Elem = TypeParam;
    for (const auto [B, T, C, V] : kSizes)
        for (bool positions : {true, false})
            for (size_t shift : {0, 1}) {
                SCOPED_TRACE(str("B ", B, ", T ", T, ", C ", C, ", V ", V, ", shift ", shift));
                const size_t n = size_t(B) * T * C;
                const auto wte = random_elems<Elem>(size_t(V) * C, "wte");
                const auto wpe = random_elems<Elem>(size_t(T) * C, "wpe");
                const auto tokens = random_ints(size_t(B) * T, "tokens", V);
                Floats x(n);
                embedding_forward(x.data(), tokens.data(), widen(wte).data(),
                                  positions ? widen(wpe).data() : nullptr, B, T, C, kCpu);
                const Device<Elem> gwte(wte, shift), gwpe(wpe, shift);
                const Device<int> gtokens(tokens);
                Device<Elem> gx(n, shift);
                embedding_forward<Elem>(gx, gtokens, gwte,
                                        positions ? static_cast<const Elem*>(gwpe) : nullptr, B, T,
                                        C, kCuda);
                EXPECT_TRUE(same_bits(gx.host(), narrow<Elem>(x)));
            }
}

TYPED_TEST(embedding_cuda, backward_has_the_bits_of_the_cpu) {
    using Elem = TypeParam;
    for (const auto [B, T, C, V] : kSizes)
        for (bool positions : {true, false})
            for (size_t shift : {0, 1}) {
                SCOPED_TRACE(str("B ", B, ", T ", T, ", C ", C, ", V ", V, ", shift ", shift));
                const auto dx = random_elems<Elem>(size_t(B) * T * C, "dx");
                const auto tokens = random_ints(size_t(B) * T, "tokens", V);
                const Floats dwte0 = random_elems<float>(size_t(V) * C, "dwte");
                const Floats dwpe0 = random_elems<float>(size_t(T + 2) * C, "dwpe");
                Floats dwte = dwte0, dwpe = dwpe0;
                embedding_backward(dwte.data(), positions ? dwpe.data() : nullptr, widen(dx).data(),
                                   tokens.data(), B, T, C, V, {}, kCpu);
                const Device<Elem> gdx(dx, shift);
                const Device<int> gtokens(tokens);
                Device<float> gdwte(dwte0, shift), gdwpe(dwpe0, shift);
                Scratch ws(embedding_backward_workspace_bytes(B, T, C, V, kCuda));
                embedding_backward<Elem>(gdwte, positions ? static_cast<float*>(gdwpe) : nullptr,
                                         gdx, gtokens, B, T, C, V, ws, kCuda);
                EXPECT_TRUE(same_bits(gdwte.host(), dwte));
                EXPECT_TRUE(same_bits(gdwpe.host(), positions ? dwpe : dwpe0));
            }
}
