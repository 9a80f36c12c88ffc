// What the memory-bound kernels move, counted by the simulator's trace mode, against the least that
// their contracts allow; and how attention uses shared memory. Prints the table of make sim-report.
//
// Rows of GPT-2's widths and vocabulary, few of them: everything counted here grows with the number
// of rows. Skipped outside trace mode.
#include <cstdio>

#include "llmc/ops/adamw.h"
#include "llmc/ops/attention.h"
#include "llmc/ops/cast.h"
#include "llmc/ops/classifier.h"
#include "llmc/ops/cuda_test.cuh"
#include "llmc/ops/embedding.h"
#include "llmc/ops/gelu.h"
#include "llmc/ops/layernorm.h"
#include "llmc/ops/matmul.cuh"
#include "llmc/ops/matmul.h"
#include "llmc/ops/reduce_sums.h"
#ifdef CUSIM
#include "cusim/counters.h"
#endif

namespace {

constexpr double kMostMoved = 1.05, kLeastEfficiency = 0.95;

struct counters_cuda : testing::Test {
    void SetUp() override {
#ifdef CUSIM
        if (cusim::counters_available()) return;
#endif
        GTEST_SKIP() << "counts need the simulator's trace mode";
    }
};

// Runs an op and checks its kernels together: bytes moved against `least`, sector efficiency, bank
// conflicts. `least` 0: only the last.
void check(const char* name, double least, const std::function<void()>& run) {
#ifdef CUSIM
    stream_sync(kCuda);
    cusim::counters_reset();
    run();
    stream_sync(kCuda);
    const cusim::KernelCounters c = cusim::counters_total();
    const double moved = double(c.moved());
    std::printf("| %-34s | %9.0f | %6.3f | %6.3f | %6.3f |\n", name, moved,
                least > 0 ? moved / least : NAN, c.sector_efficiency(), c.conflicts_per_access());
    if (least > 0) {
        EXPECT_LE(moved, kMostMoved * least) << name << "\n" << cusim::counters_by_line("");
        EXPECT_GE(moved, 0.999 * least) << name << ": less than the least, so the least is wrong";
    }
    EXPECT_GE(c.sector_efficiency(), kLeastEfficiency) << name << "\n"
                                                       << cusim::counters_by_line("");
    EXPECT_LE(c.conflicts_per_access(), 0.01) << name << "\n" << cusim::counters_by_line("");
#else
    (void)name, (void)least, (void)run;
#endif
}

void header(const char* title) {
    std::printf("\n%s\n\n| %-34s | %9s | %6s | %6s | %6s |\n|---|---|---|---|---|\n", title,
                "kernels of", "bytes", "/least", "sector", "bank");
}

}  // namespace

TEST_F(counters_cuda, memory_bound_ops_move_little_more_than_the_least) {
    const int N = 256, C = 768;
    const size_t n = size_t(N) * C, bytes = n * sizeof(bf16);
    const Device<bf16> x(random_elems<bf16>(n, "x")), y(random_elems<bf16>(n, "y")),
        w(random_elems<bf16>(C, "w")), b(random_elems<bf16>(C, "b"));
    const Device<float> wide(random_elems<float>(n, "wide"));
    Device<bf16> out(n), out2(n);
    Device<float> mean(N), rstd(N), dw(Floats(C, 0.f)), db(Floats(C, 0.f)), wide_out(n);
    const double stats = 2.0 * N * sizeof(float), params = 2.0 * C * sizeof(bf16);

    header(
        "bf16, N = 256 rows of C = 768; bytes moved, over the least, sector efficiency, bank "
        "conflicts per access");
    check("layernorm_forward", 2.0 * bytes + stats + params,
          [&] { layernorm_forward<bf16>(out, mean, rstd, x, w, b, N, C, 1e-5f, kCuda); });
    check("residual_layernorm_forward", 4.0 * bytes + stats + params, [&] {
        residual_layernorm_forward<bf16>(out, out2, mean, rstd, x, y, w, b, N, C, 1e-5f, kCuda);
    });
    check("gelu_forward", 2.0 * bytes, [&] { gelu_forward<bf16>(out, x, n, kCuda); });
    check("gelu_backward", 3.0 * bytes, [&] { gelu_backward<bf16>(out, y, x, n, kCuda); });
    check("cast to bf16", 3.0 * bytes, [&] { cast(out, wide, n, kCuda); });
    check("cast to float", 3.0 * bytes, [&] { cast(wide_out, x, n, kCuda); });
    FixedSum zero;
    Device<FixedSum> sum(std::vector<FixedSum>{zero});
    check("sum_of_squares", 2.0 * bytes, [&] { sum_of_squares(sum, wide, n, kCuda); });

    const size_t p = 100003;
    Device<float> master(random_elems<float>(p, "p")), m(Floats(p, 0.f)), v(Floats(p, 0.f)),
        grad(random_elems<float>(p, "g"));
    const Device<float> one(Floats{1.f});
    Device<bf16> low(p);
    check("adamw_update", 34.0 * p, [&] {
        adamw_update<bf16>(master, low, m, v, grad, one, p, {1e-3f, .9f, .95f, 1e-8f, .1f, 1},
                           {1, 2, 0, true}, kCuda);
    });
    Device<int64_t> acc(std::vector<int64_t>(p, 0));
    Device<int> bad(std::vector<int>{0});
    check("accumulate_fixed", 24.0 * p, [&] { accumulate_fixed(acc, grad, bad, p, kCuda); });
    check("fixed_to_float", 20.0 * p, [&] { fixed_to_float(grad, acc, p, kCuda); });
}

// The partial sums of dw and db take 16 blocks / (3 N sizeof(Elem)) of the bytes: 128 blocks, so N
// has to be as large as in training for them to vanish. Fewer columns keep that affordable here;
// the share does not depend on C.
TEST_F(counters_cuda, layernorm_backward_moves_little_more_than_the_least) {
    const int N = 8192, C = 64;
    const size_t n = size_t(N) * C;
    const double bytes = double(n) * sizeof(bf16), stats = 2.0 * N * sizeof(float);
    const Device<bf16> x(random_elems<bf16>(n, "x")), dy(random_elems<bf16>(n, "dy")),
        w(random_elems<bf16>(C, "w"));
    Device<bf16> dx(random_elems<bf16>(n, "dx"));
    const Device<float> mean(Floats(N, 0.f)), rstd(Floats(N, 1.f));
    Device<float> dw(Floats(C, 0.f)), db(Floats(C, 0.f));
    Scratch ws(layernorm_backward_workspace_bytes(N, C, kCuda));
    header("bf16, N = 8192 rows");
    check("layernorm_backward", 3 * bytes + stats,
          [&] { layernorm_backward<bf16>(dx, dw, db, dy, x, w, mean, rstd, N, C, ws, kCuda); });
    check("residual_layernorm_backward", 4 * bytes + stats, [&] {
        residual_layernorm_backward<bf16>(dx, dw, db, dy, x, w, mean, rstd, N, C, ws, kCuda);
    });
}

TEST_F(counters_cuda, classifier_reads_logits_once) {
    const int N = 4, V = 50257, Vp = 50304;
    const double bytes = double(N) * Vp * sizeof(bf16);
    Device<bf16> logits(random_elems<bf16>(size_t(N) * Vp, "logits"));
    const Device<int> targets(random_ints(N, "targets", V));
    Device<float> losses(N);
    header("bf16, N = 4 rows of V = 50257 of 50304 logits");
    check("classifier_forward", bytes,
          [&] { classifier_forward<bf16>(losses, logits, targets, N, V, Vp, kCuda); });
    check("classifier_forward_backward", 2 * bytes, [&] {
        classifier_forward_backward<bf16>(losses, logits, targets, 1.f, N, V, Vp, kCuda);
    });
}

TEST_F(counters_cuda, embedding_moves_little_more_than_the_least) {
    const int B = 4, T = 64, C = 768, V = 64, N = B * T;
    const double bytes = double(N) * C * sizeof(bf16);
    const Device<bf16> wte(random_elems<bf16>(size_t(V) * C, "wte")),
        wpe(random_elems<bf16>(size_t(T) * C, "wpe")), dx(random_elems<bf16>(size_t(N) * C, "dx"));
    std::vector<int> ids(N);
    for (int i = 0; i < N; i++) ids[i] = i * 5 % V;  // every token of the vocabulary occurs
    const Device<int> tokens(ids);
    Device<bf16> x(size_t(N) * C);
    Device<float> dwte(Floats(size_t(V) * C, 0.f)), dwpe(Floats(size_t(T) * C, 0.f));
    Scratch ws(embedding_backward_workspace_bytes(B, T, C, V, kCuda));
    header("bf16, B = 4, T = 64, C = 768, 64 tokens in use");
    check("embedding_forward", bytes + 2.0 * (V + T) * C + 4.0 * N,
          [&] { embedding_forward<bf16>(x, tokens, wte, wpe, B, T, C, kCuda); });
    // dx is read by two kernels: once by token, once by position.
    check("embedding_backward", 2 * bytes + 8.0 * (V + T) * C,
          [&] { embedding_backward<bf16>(dwte, dwpe, dx, tokens, B, T, C, V, ws, kCuda); });
}

// Attention and the own product: no bank conflicts, whole sectors. (Their bytes depend on tiles.)
TEST_F(counters_cuda, tensor_core_kernels_have_no_bank_conflicts) {
    header("tensor cores");
    for (int HS : {64, 128}) {
        const int B = 1, T = 256, H = 1;
        const Device<bf16> qkv(random_elems<bf16>(size_t(T) * 3 * HS, "qkv")),
            dout(random_elems<bf16>(size_t(T) * HS, "dout"));
        Device<bf16> out(size_t(T) * HS), dqkv(size_t(T) * 3 * HS);
        Device<float> lse(T);
        Scratch ws(attention_backward_workspace_bytes(B, T, H, H, HS, kCuda));
        const double qkv_bytes = 3.0 * T * HS * sizeof(bf16), out_bytes = qkv_bytes / 3;
        check(str("attention_forward HS ", HS).c_str(), qkv_bytes + out_bytes + 4.0 * T,
              [&] { attention_forward<bf16>(out, lse, qkv, B, T, H, H, HS, {}, kCuda); });
        check(str("attention_backward HS ", HS).c_str(), 0, [&] {
            attention_backward<bf16>(dqkv, dout, qkv, out, lse, B, T, H, H, HS, ws, kCuda);
        });
    }
    const int N = 128, C = 192, OC = 128;
    const Device<bf16> x(random_elems<bf16>(size_t(N) * C, "x")),
        w(random_elems<bf16>(size_t(OC) * C, "w"));
    Device<bf16> y(size_t(N) * OC);
    Scratch ws(matmul_workspace_bytes(N, C, OC, kCuda));
    matmul_path = MatmulPath::Own;
    check("own product, y = x w^T", 2.0 * (N * C + OC * C + N * OC),
          [&] { matmul_forward<bf16>(y, x, w, nullptr, N, C, OC, ws, kCuda); });
    matmul_path = MatmulPath::Fused;
}
