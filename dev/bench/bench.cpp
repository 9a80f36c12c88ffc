// dev/bench/bench.cpp: speed of a whole training step on the CPU, against the machine's own GEMM.
//
//   build/bench [MODEL B T [VOCAB]]      default: gpt2:124M 4 256, then gpt2:124M 2 1024, ...
//
// For each shape, in one run: tokens/s of forward + backward + norm + AdamW (median of the steps),
// the time that the BLAS alone takes for the same step's GEMMs, called whole, with its own threads,
// and milliseconds by phase. Data are random: constants would not be a fair load.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "llmc/core/check.h"
#include "llmc/core/phase.h"
#include "llmc/core/rng.h"
#include "llmc/model/gpt.h"
#include "llmc/ops/blas.h"

namespace {
double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

double median(std::vector<double> x) {
    std::nth_element(x.begin(), x.begin() + x.size() / 2, x.end());
    return x[x.size() / 2];
}

struct Product {
    Op a, b;
    int64_t M, N, K, times;
};

// Every GEMM of one step: forward, gradient of the input, gradient of the weights.
std::vector<Product> step_products(const ModelConfig& c, int64_t N) {
    std::vector<Product> all;
    auto linear = [&](int64_t rows, int64_t in, int64_t out, int64_t times) {
        all.push_back({Op::Plain, Op::Transposed, rows, out, in, times});
        all.push_back({Op::Plain, Op::Plain, rows, in, out, times});
        all.push_back({Op::Transposed, Op::Plain, out, in, rows, times});
    };
    linear(N, c.C, c.QKV(), c.L);
    linear(N, c.C, c.C, c.L);
    linear(N, c.C, c.F, c.L);
    linear(N, c.F, c.C, c.L);
    const int64_t rows = head_rows<float>(c, N);
    linear(rows, c.C, c.Vp, N / rows);
    if (N % rows) linear(N % rows, c.C, c.Vp, 1);
    return all;
}

double product_flops(const Product& p) {
    return 2.0 * double(p.M) * double(p.N) * double(p.K);
}

// Seconds of the BLAS alone for these products: each shape timed by itself, best of three.
double blas_seconds(const std::vector<Product>& products, double& flops) {
    BlasSgemm* const sgemm = blas_library().sgemm;
    CHECK(sgemm, Exit::Resource, "no BLAS on this machine to compare with");
    double seconds = 0;
    flops = 0;
    for (const Product& p : products) {
        std::vector<float> A(size_t(p.M * p.K)), B(size_t(p.K * p.N)), C(size_t(p.M * p.N));
        random_normal(A.data(), A.size(), 0, 0, 1, 1, 1);
        random_normal(B.data(), B.size(), 0, 0, 1, 1, 2);
        double best = 1e30;
        for (int i = 0; i < 3; i++) {
            const double begin = now();
            sgemm(p.a, p.b, p.M, p.N, p.K, A.data(), p.a == Op::Plain ? p.K : p.M, B.data(),
                  p.b == Op::Plain ? p.N : p.K, p.a == Op::Transposed ? 1.f : 0.f, C.data(), p.N);
            best = std::min(best, now() - begin);
        }
        seconds += best * double(p.times);
        flops += product_flops(p) * double(p.times);
    }
    return seconds;
}

void bench(const ModelConfig& c, int B, int T, int steps) {
    const int64_t N = int64_t(B) * T;
    double flops = 0;
    const double blas = blas_seconds(step_products(c, N), flops);

    auto comm = comm_self();
    Memory<CpuStream> memory{CpuStream{}};
    Shards<float, CpuStream> shards(param_layout(c), {}, *comm, memory);
    auto gpt = gpt_create<float>(c, B, T, Recompute::None, false, memory);
    for (TensorSlice& s : shards.master_slices()) param_init(s.data, *s.tensor, 0, s.count, 1);
    std::vector<int> tokens(size_t(N), 0), targets(size_t(N), 0);
    for (int64_t i = 0; i < N; i++) {
        tokens[size_t(i)] = int(random_bits(1, 3, uint64_t(i)) % unsigned(c.V));
        targets[size_t(i)] = int(random_bits(1, 4, uint64_t(i)) % unsigned(c.V));
    }

    std::vector<double> times;
    auto before = phase_seconds;
    for (int step = 0; step <= steps; step++) {
        if (step == 1) before = phase_seconds;  // the first step warms up
        const double begin = now();
        gpt_loss_reset(gpt);
        gpt_forward_backward(gpt, shards, tokens.data(), targets.data(), 1.f / float(N));
        shards.reduce();
        shards.clip(1, gpt.loss_sum);
        shards.step({1e-4f, 0.9f, 0.95f, 1e-8f, 0.1f, step + 1});
        shards.gather();
        if (step) times.push_back(now() - begin);
    }

    const double step = median(times);
    std::printf("%-10s B=%d T=%d V=%d   %.1f tokens/s   %.0f ms a step\n", c.name.c_str(), B, T,
                c.V, double(N) / step, step * 1e3);
    std::printf(
        "  %s alone, this step's GEMMs: %.0f ms, %.1f GFLOP/s; the step reaches %.1f "
        "GFLOP/s, %.0f%% of that\n",
        blas_library().name, blas * 1e3, flops / blas * 1e-9, flops / step * 1e-9,
        100 * blas / step);
    std::printf("  ms:");
    for (int p = 0; p < int(Phase::Count); p++)
        std::printf(" %s %.0f,", phase_name(Phase(p)),
                    (phase_seconds[size_t(p)] - before[size_t(p)]) / steps * 1e3);
    std::printf(" planned memory %.2f GiB\n", double(memory.plan().total()) / (1 << 30));
    std::fflush(stdout);
}
}  // namespace

int main(int argc, char** argv) {
    if (argc > 3) {
        bench(model_config(argv[1], argc > 4 ? std::atoi(argv[4]) : 0), std::atoi(argv[2]),
              std::atoi(argv[3]), 5);
        return 0;
    }
    bench(model_config("gpt2:124M"), 4, 256, 5);
    bench(model_config("gpt2:124M"), 2, 1024, 3);
    bench(model_config("gpt2:d6", 257), 8, 256, 5);
    bench(model_config("gpt2:d6", 50304), 8, 256, 5);
}
