// One digest of every op's results, printed. scripts/sim_schedules.sh runs this under other orders
// of threads, blocks and streams (CUSIM_SCHED, CUSIM_STREAM) and compares: equal, or an op depends
// on timing. Here: two runs in one process give equal bits.
#include <cstdio>

#include "llmc/core/hash.h"
#include "llmc/ops/adamw.h"
#include "llmc/ops/attention.h"
#include "llmc/ops/classifier.h"
#include "llmc/ops/cuda_test.cuh"
#include "llmc/ops/embedding.h"
#include "llmc/ops/layernorm.h"
#include "llmc/ops/matmul.cuh"
#include "llmc/ops/matmul.h"
#include "llmc/ops/reduce_sums.h"

namespace {

template <class... T>
std::string digest(const Device<T>&... outputs) {
    Digest d;
    (
        [&] {
            const std::vector<T> host = outputs.host();
            d.update(host.data(), host.size() * sizeof(T));
        }(),
        ...);
    return d.hex();
}

void expect_one_result(const char* name, const std::function<std::string()>& run) {
    const std::string first = run();
    EXPECT_EQ(run(), first) << name;
    std::printf("digest %s %s\n", first.c_str(), name);
}

template <class Elem>
void all_ops(const char* type) {
    SCOPED_TRACE(type);
    const int N = 300, C = 136;
    const auto x = random_elems<Elem>(size_t(N) * C, "x"),
               dy = random_elems<Elem>(size_t(N) * C, "dy");
    const auto w = random_elems<Elem>(C, "w");
    const Device<Elem> gx(x), gdy(dy), gw(w);
    const auto tag = [&](const char* op) { return str(op, " ", type); };

    expect_one_result(tag("layernorm").c_str(), [&] {
        Device<Elem> y(x.size()), dx(x.size());
        Device<float> mean(N), rstd(N), dw(Floats(C, 0.f)), db(Floats(C, 0.f));
        Scratch ws(layernorm_backward_workspace_bytes(N, C, kCuda));
        layernorm_forward<Elem>(y, mean, rstd, gx, gw, gw, N, C, 1e-5f, kCuda);
        layernorm_backward<Elem>(dx, dw, db, gdy, gx, gw, mean, rstd, N, C, ws, kCuda);
        return digest(y, dx, dw, db);
    });
    expect_one_result(tag("embedding_backward").c_str(), [&] {
        const Device<int> tokens(random_ints(N, "tokens", 20));
        Device<float> dwte(Floats(20 * C, 0.f)), dwpe(Floats(100 * C, 0.f));
        Scratch ws(embedding_backward_workspace_bytes(3, 100, C, 20, kCuda));
        embedding_backward<Elem>(dwte, dwpe, gdy, tokens, 3, 100, C, 20, ws, kCuda);
        return digest(dwte, dwpe);
    });
    expect_one_result(tag("classifier").c_str(), [&] {
        Device<Elem> logits(x);
        const Device<int> targets(random_ints(N, "targets", C));
        Device<float> losses(N);
        classifier_forward_backward<Elem>(losses, logits, targets, 0.1f, N, C, C, kCuda);
        return digest(losses, logits);
    });
    for (int HS : {64, 24}) {
        const int B = 1, T = 70, H = 2, KV = 1;
        const Device<Elem> qkv(random_elems<Elem>(size_t(T) * (H + 2 * KV) * HS, "qkv")),
            dout(random_elems<Elem>(size_t(T) * H * HS, "dout"));
        expect_one_result(tag(str("attention HS ", HS).c_str()).c_str(), [&] {
            Device<Elem> out(size_t(T) * H * HS), dqkv(size_t(T) * (H + 2 * KV) * HS);
            Device<float> lse(T * H);
            Scratch ws(attention_backward_workspace_bytes(B, T, H, KV, HS, kCuda));
            attention_forward<Elem>(out, lse, qkv, B, T, H, KV, HS, {}, kCuda);
            attention_backward<Elem>(dqkv, dout, qkv, out, lse, B, T, H, KV, HS, ws, kCuda);
            return digest(out, lse, dqkv);
        });
    }
    Scratch ws(matmul_workspace_bytes(N, C, C, kCuda));
    for (const MatmulPath path : {MatmulPath::Fused, MatmulPath::Plain, MatmulPath::Own}) {
        if (path == MatmulPath::Own && std::is_same_v<Elem, float>) continue;
        expect_one_result(tag(str("matmul path ", int(path)).c_str()).c_str(), [&] {
            matmul_path = path;
            Device<float> dw(Floats(C * C, 0.f)), db(Floats(C, 0.f));
            matmul_backward_params<Elem>(dw, db, gdy, gx, N, C, C, ws, kCuda);
            matmul_path = MatmulPath::Fused;
            return digest(dw, db);
        });
    }
}

}  // namespace

TEST(digests_cuda, equal_runs_give_equal_bits) {
    all_ops<float>("fp32");
    all_ops<bf16>("bf16");
    const size_t n = 40003;
    const Floats x = random_elems<float>(n, "x");
    expect_one_result("sum_of_squares", [&] {
        const Device<float> gx(x);
        Device<FixedSum> sum(std::vector<FixedSum>(1));
        sum_of_squares(sum, gx, n, kCuda);
        return digest(sum);
    });
    expect_one_result("adamw", [&] {
        Device<float> p(x), m(Floats(n, 0.f)), v(Floats(n, 0.f)), grad(x);
        const Device<float> scale(Floats{1.f});
        Device<bf16> low(n);
        adamw_update<bf16>(p, low, m, v, grad, scale, n, {1e-3f, .9f, .95f, 1e-8f, .1f, 1},
                           {1, 2, 0, true}, kCuda);
        return digest(p, low, m, v, grad);
    });
}
