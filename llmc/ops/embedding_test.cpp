#include "llmc/ops/embedding.h"

#include "llmc/ops/op_test.h"

namespace {
constexpr int B = 3, T = 5, C = 37, V = 7, kPositions = 9;
const int tokens[B * T] = {0, 6, 2, 2, 1, 6, 6, 6, 6, 6, 3, 0, 2, 1, 4};  // 5 never occurs
}  // namespace

TEST(embedding, forward_adds_token_and_position) {
    const Buffer wte = random_buffer(V * C, "wte"), wpe = random_buffer(kPositions * C, "wpe");
    Buffer x(B * T * C), without(B * T * C);
    embedding_forward(x, tokens, wte, wpe, B, T, C, CpuStream{});
    embedding_forward(without, tokens, wte, nullptr, B, T, C, CpuStream{});
    for (int n = 0; n < B * T; n++) {
        for (int c = 0; c < C; c++) {
            EXPECT_EQ(x[n * C + c], wte[tokens[n] * C + c] + wpe[n % T * C + c]);
            EXPECT_EQ(without[n * C + c], wte[tokens[n] * C + c]);
        }
    }
}

// With small integers every sum is exact, so the gradient must be too; on top of what was there.
TEST(embedding, backward_adds_every_occurrence) {
    Buffer dx(B * T * C), dwte(V * C, 100.f), dwpe(kPositions * C, 200.f);
    for (size_t i = 0; i < dx.size(); i++) dx[i] = float(int(i * 7 % 31) - 15);
    Scratch ws(embedding_backward_workspace_bytes(B, T, C, V, CpuStream{}));
    embedding_backward(dwte, dwpe, dx, tokens, B, T, C, V, ws, CpuStream{});
    Buffer want_wte(V * C, 100.f), want_wpe(kPositions * C, 200.f);
    for (int n = 0; n < B * T; n++) {
        for (int c = 0; c < C; c++) {
            want_wte[tokens[n] * C + c] += dx[n * C + c];
            want_wpe[n % T * C + c] += dx[n * C + c];  // rows T.. stay
        }
    }
    EXPECT_TRUE(dwte == want_wte);
    EXPECT_TRUE(dwpe == want_wpe);
    Buffer only(V * C, 100.f);
    embedding_backward(only, nullptr, dx, tokens, B, T, C, V, ws, CpuStream{});
    EXPECT_TRUE(only == want_wte);
}

TEST(embedding, backward_has_the_same_bits_on_any_threads) {
    const Buffer dx = random_buffer(B * T * C, "dx");
    expect_same_bits_on_any_threads([&] {
        Buffer both((V + kPositions) * C);
        Scratch ws(embedding_backward_workspace_bytes(B, T, C, V, CpuStream{}));
        embedding_backward(both, both + V * C, dx, tokens, B, T, C, V, ws, CpuStream{});
        return both;
    });
}
