// dev/bench_ops/bench_ops.cpp: what each CPU op costs in one training step of GPT-2 124M, beside
// the machine's copy bandwidth and the rate of its BLAS in the same run.
//   make bench-ops                      make bench-ops ARGS="2 1024"       (B T, default 4 256)
#include <omp.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <vector>

#include "llmc/core/check.h"
#include "llmc/core/plural.h"
#include "llmc/core/rng.h"
#include "llmc/ops/adamw.h"
#include "llmc/ops/attention.h"
#include "llmc/ops/classifier.h"
#include "llmc/ops/embedding.h"
#include "llmc/ops/gemm.h"
#include "llmc/ops/layernorm.h"
#include "llmc/ops/matmul.h"
#include "llmc/ops/reduce_sums.h"

namespace {
constexpr CpuStream stream;
constexpr int L = 12, C = 768, H = 12, HS = 64, F = 4 * C, V = 50257, Vp = 50304;
constexpr int kChunkRows = 256;  // rows of logits at a time

struct Tensor {
    int64_t n;
    float* data;
    explicit Tensor(int64_t n, float std = 1.f)
        : n(n), data(static_cast<float*>(memory_alloc(n * sizeof(float), "the bench", stream))) {
        random_normal(data, n, 0, 0.f, std, 1, n);
    }
    Tensor(const Tensor&) = delete;
    ~Tensor() { memory_free(data, n * sizeof(float), stream); }
    operator float*() const { return data; }
    operator Workspace() const { return {data, n * sizeof(float)}; }
};

using Work = std::function<void()>;

// With one thread the time that this process was given, which a busy machine disturbs little:
//   OMP_NUM_THREADS=1 make bench-ops
double now() {
    timespec t;
    clock_gettime(omp_get_max_threads() == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

// Seconds of one call of each: the least disturbed of five, taking turns, after one to warm up.
std::vector<double> seconds(const std::vector<Work>& works) {
    std::vector<double> best(works.size(), 1e9);
    for (int round = 0; round < 6; round++) {
        for (size_t i = 0; i < works.size(); i++) {
            const double start = now();
            works[i]();
            if (round > 0) best[i] = std::min(best[i], now() - start);
        }
    }
    return best;
}

double matmul_seconds = 0, library_seconds = 0, other_seconds = 0;

// A line for an op called so many times a step, which moves or computes `amount` a call.
void report(const char* name, double calls, double amount, const char* unit, const Work& work) {
    const double t = seconds({work})[0];
    other_seconds += t * calls;
    std::printf("%-26s %5.0f x %8.3f = %7.1f ms %8.1f %s\n", name, calls, t * 1e3, t * calls * 1e3,
                amount / t * 1e-9, unit);
}

// An op that is a product, and the product alone as a BLAS does it on all threads.
void report_product(const std::string& name, double calls, double flops, const Work& ours,
                    const Work& library) {
    const std::vector<double> t = seconds({ours, library});
    matmul_seconds += t[0] * calls;
    library_seconds += t[1] * calls;
    std::printf("%-26s %5.0f x %8.3f = %7.1f ms %8.1f GFLOP/s   library alone %8.3f ms %8.1f\n",
                name.c_str(), calls, t[0] * 1e3, t[0] * calls * 1e3, flops / t[0] * 1e-9,
                t[1] * 1e3, flops / t[1] * 1e-9);
}

void linear(const std::string& name, double calls, int N, int in, int out, bool gelu_after,
            bool gelu_before) {
    const Tensor x(int64_t(N) * in), w(int64_t(out) * in, 0.02f), b(out), dx(x.n), dw(w.n);
    const Tensor y(int64_t(N) * out), act(y.n);
    const Tensor ws(gemm_workspace_bytes() / sizeof(float));
    const double flops = 2. * N * in * out;
    report_product(
        name + " forward", calls, flops,
        [&] {
            if (gelu_after)
                matmul_gelu_forward(act, y, x, w, b, N, in, out, ws, stream);
            else
                matmul_forward(y, x, w, b, N, in, out, ws, stream);
        },
        [&] {
            blas_library().sgemm(Op::Plain, Op::Transposed, N, out, in, x, in, w, in, 0, y, out);
        });
    report_product(
        name + " dx", calls, flops,
        [&] {
            if (gelu_before)
                matmul_backward_input_gelu(dx, y, w, x, N, in, out, ws, stream);
            else
                matmul_backward_input(dx, y, w, N, in, out, ws, stream);
        },
        [&] { blas_library().sgemm(Op::Plain, Op::Plain, N, in, out, y, out, w, in, 0, dx, in); });
    report_product(
        name + " dw", calls, flops,
        [&] { matmul_backward_params(dw, b, y, x, N, in, out, ws, stream); },
        [&] {
            blas_library().sgemm(Op::Transposed, Op::Plain, out, in, N, y, out, x, in, 1, dw, in);
        });
}

void attention(int B, int T) {
    const int64_t N = int64_t(B) * T;
    const Tensor qkv(N * 3 * C), dqkv(qkv.n), out(N * C), dout(out.n), lse(N * H);
    const Tensor ws(std::max(attention_forward_workspace_bytes(B, T, H, H, HS, stream),
                             attention_backward_workspace_bytes(B, T, H, H, HS, stream)) /
                    sizeof(float));
    const double product = 2. * B * H * HS * T * (T + 1) / 2;
    report("attention forward", L, 2 * product, "GFLOP/s",
           [&] { attention_forward(out, lse, qkv, B, T, H, H, HS, ws, stream); });
    report("attention backward", L, 5 * product, "GFLOP/s",
           [&] { attention_backward(dqkv, dout, qkv, out, lse, B, T, H, H, HS, ws, stream); });
}

// Bytes are the least that an op must move: each tensor read or written once.
void rows(int B, int T) {
    const int64_t N = int64_t(B) * T, bytes = N * C * sizeof(float);
    const Tensor x(N * C), y(N * C), branch(N * C), w(C), b(C), mean(N), rstd(N), dw(C), db(C);
    const Tensor ws(layernorm_backward_workspace_bytes(int(N), C, stream) / sizeof(float));
    report("residual+layernorm forward", 2 * L + 1, 4 * bytes, "GB/s", [&] {
        residual_layernorm_forward(x, y, mean, rstd, x, branch, w, b, int(N), C, 1e-5f, stream);
    });
    report("residual+layernorm backward", 2 * L + 1, 4 * bytes, "GB/s", [&] {
        residual_layernorm_backward(x, dw, db, y, branch, w, mean, rstd, int(N), C, ws, stream);
    });
    std::vector<int> tokens(N);
    for (int64_t n = 0; n < N; n++) tokens[n] = int(n * 7919 % V);
    const Tensor wte(int64_t(V) * C), wpe(int64_t(T) * C);
    report("embedding forward", 1, 3 * bytes, "GB/s",
           [&] { embedding_forward(x, tokens.data(), wte, wpe, B, T, C, stream); });
    report("embedding backward", 1, 5 * bytes, "GB/s", [&] {
        embedding_backward(wte, wpe, x, tokens.data(), B, T, C, V, Workspace{}, stream);
    });
    const int64_t chunk = std::min<int64_t>(kChunkRows, N);
    const Tensor logits(chunk * Vp), losses(chunk);
    report("classifier", double(N) / chunk, 2. * chunk * V * sizeof(float), "GB/s", [&] {
        classifier_forward_backward(losses, logits, tokens.data(), 1e-3f, int(chunk), V, Vp,
                                    stream);
    });
}

void parameters() {
    const int64_t n = 124'475'904;
    const Tensor p(n), m(n), v(n), g(n);
    std::fill_n(v.data, n, 1.f);
    const float scale = 1.f;
    FixedSum sum;
    report("gradient norm", 1, 4. * n, "GB/s", [&] { sum_of_squares(&sum, g, n, stream); });
    report("AdamW", 1, 32. * n, "GB/s", [&] {
        adamw_update(p, m, v, g, &scale, n, {1e-4f, 0.9f, 0.95f, 1e-8f, 0.1f, 1}, stream);
    });
    report("memory: copy", 0, 8. * n, "GB/s", [&] {
#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < n; i += 4096)
            std::memcpy(m + i, v + i, 4 * std::min<int64_t>(4096, n - i));
    });
}
}  // namespace

int main(int argc, char** argv) try {
    const int B = argc > 2 ? std::atoi(argv[1]) : 4, T = argc > 2 ? std::atoi(argv[2]) : 256;
    const int N = B * T;
    CHECK(B > 0 && T > 0, Exit::Usage, "bad arguments", "", "B T");
    CHECK(blas_library().sgemm, Exit::Resource, "no BLAS on this machine to compare with", "", "",
          "OpenBLAS built for OpenMP, or oneDNN");
    std::printf("GPT-2 124M, B=%d T=%d, %s, products: %s, library: %s\n", B, T,
                counted(omp_get_max_threads(), "thread").c_str(), gemm_library(),
                blas_library().name);
    linear("qkv", L, N, C, 3 * C, false, false);
    linear("attention projection", L, N, C, C, false, false);
    linear("fc + GELU", L, N, C, F, true, false);
    linear("mlp projection", L, N, F, C, false, true);
    linear("head", double(N) / kChunkRows, kChunkRows, C, Vp, false, false);
    attention(B, T);
    rows(B, T);
    parameters();
    std::printf(
        "matmul ops %.1f ms (%.1f %% of them the library alone), all others %.1f ms: the step runs "
        "at %.1f %% of the library's rate\n",
        matmul_seconds * 1e3, 100 * library_seconds / matmul_seconds, other_seconds * 1e3,
        100 * library_seconds / (matmul_seconds + other_seconds));
} catch (const Error& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return int(e.code);
}
