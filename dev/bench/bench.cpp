// dev/bench/bench.cpp: speed of a whole training step on the CPU, against the machine's own GEMM.
//
//   build/bench [MODEL B T [VOCAB [STEPS]]]      default: four shapes of GPT-2, see main
//
// For each shape, in one run: tokens/s of forward + backward + norm + AdamW, the time that the BLAS
// alone takes for the same step's GEMMs, called whole, with its own threads, milliseconds by phase,
// and peak resident memory beside the plan. Steps and BLAS take turns, and medians are compared, so
// that a busy machine slows both alike. Data are random: constants would not be a fair load.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "llmc/core/check.h"
#include "llmc/core/phase.h"
#include "llmc/core/rng.h"
#include "llmc/model/gpt.h"
#include "llmc/ops/gemm.h"

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
    linear(N, c.A(), c.C, c.L);
    linear(N, c.C, c.FC(), c.L);
    linear(N, c.F, c.C, c.L);
    const int64_t rows = head_rows<float>(c, N);
    linear(rows, c.C, c.Vp, N / rows);
    if (N % rows) linear(N % rows, c.C, c.Vp, 1);
    return all;
}

// The BLAS alone on these products, one buffer for each operand of the largest.
class BlasRun {
  public:
    explicit BlasRun(std::vector<Product> products) : products_(std::move(products)) {
        CHECK(blas_library().sgemm, Exit::Resource, "no BLAS on this machine to compare with", "",
              "", "OpenBLAS built for OpenMP, or oneDNN");
        size_t a = 0, b = 0, c = 0;
        for (const Product& p : products_) {
            a = std::max(a, size_t(p.M * p.K));
            b = std::max(b, size_t(p.K * p.N));
            c = std::max(c, size_t(p.M * p.N));
            flops_ += 2.0 * double(p.M) * double(p.N) * double(p.K) * double(p.times);
        }
        A_.resize(a), B_.resize(b), C_.resize(c);
        random_normal(A_.data(), a, 0, 0, 1, 1, 1);
        random_normal(B_.data(), b, 0, 0, 1, 1, 2);
    }
    double seconds() {
        const double begin = now();
        for (const Product& p : products_) {
            for (int64_t i = 0; i < p.times; i++) {
                blas_library().sgemm(p.a, p.b, p.M, p.N, p.K, A_.data(),
                                     p.a == Op::Plain ? p.K : p.M, B_.data(),
                                     p.b == Op::Plain ? p.N : p.K,
                                     p.a == Op::Transposed ? 1.f : 0.f, C_.data(), p.N);
            }
        }
        return now() - begin;
    }
    double flops() const { return flops_; }

  private:
    std::vector<Product> products_;
    std::vector<float> A_, B_, C_;
    double flops_ = 0;
};

// Peak resident memory since the last reset (Linux: proc(5), clear_refs and VmHWM).
void peak_resident_reset() {
    std::ofstream("/proc/self/clear_refs") << 5;
}
double peak_resident_gib() {
    std::ifstream status("/proc/self/status");
    std::string word;
    double kib = 0;
    while (status >> word)
        if (word == "VmHWM:") status >> kib;
    return kib / (1 << 20);
}

void bench(const ModelConfig& c, int B, int T, int steps) {
    const int64_t N = int64_t(B) * T;
    peak_resident_reset();
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

    int count = 0;
    const auto one_step = [&] {
        const double begin = now();
        gpt_loss_reset(gpt);
        gpt_forward_backward(gpt, shards, tokens.data(), targets.data(), 1.f / float(N));
        shards.reduce();
        shards.clip(1, gpt.loss_sum);
        shards.step({1e-4f, 0.9f, 0.95f, 1e-8f, 0.1f, ++count});
        shards.gather();
        return now() - begin;
    };
    one_step();  // to warm up, and to see how much memory a step needs
    const double peak = peak_resident_gib();
    constexpr int64_t n = 2048;  // a square product: the most that the machine is seen to reach
    BlasRun blas(step_products(c, N)), square({{Op::Plain, Op::Plain, n, n, n, 1}});
    blas.seconds();
    std::vector<double> times, blas_times;
    double square_best = square.seconds();
    const auto before = phase_seconds;
    for (int i = 0; i < steps; i++) {
        times.push_back(one_step());
        blas_times.push_back(blas.seconds());
        for (int k = 0; k < 3; k++) square_best = std::min(square_best, square.seconds());
    }
    const double peak_rate = square.flops() / square_best;

    const double step = median(times);
    const double alone = median(blas_times), flops = blas.flops();
    std::printf("%-10s B=%d T=%d V=%d   %.1f tokens/s   %.0f ms a step\n", c.name.c_str(), B, T,
                c.V, double(N) / step, step * 1e3);
    std::printf(
        "  whole step, %.6g GFLOP in products %s: %.1f GFLOP/s, %.0f%% of the SGEMM peak (%.1f)\n",
        flops * 1e-9, gemm_library(), flops / step * 1e-9, 100 * flops / step / peak_rate,
        peak_rate * 1e-9);
    std::printf(
        "  %s alone on the step's GEMMs: %.1f GFLOP/s, %.0f ms: the step reaches %.0f%% of "
        "that\n",
        blas_library().name, flops / alone * 1e-9, alone * 1e3, 100 * alone / step);
    std::printf("  ms:");
    for (int p = 0; p < int(Phase::Count); p++)
        std::printf(" %s %.0f,", phase_name(Phase(p)),
                    (phase_seconds[size_t(p)] - before[size_t(p)]) / steps * 1e3);
    const double plan = double(memory.plan().total()) / (1 << 30);
    std::printf("\n  memory: plan %.2f GiB, peak resident %.2f GiB (%.1f%% of the plan)\n", plan,
                peak, 100 * peak / plan);
    std::fflush(stdout);
}
}  // namespace

int main(int argc, char** argv) try {
    if (argc > 1) {
        const auto number = [&](int i, int otherwise) {
            return argc > i ? std::atoi(argv[i]) : otherwise;
        };
        const int B = number(2, 0), T = number(3, 0), V = number(4, 0), steps = number(5, 5);
        CHECK(B > 0 && T > 0 && V >= 0 && steps > 0, Exit::Usage, "bad arguments", "",
              "MODEL B T [VOCAB [STEPS]]");
        const ModelConfig c = model_config(argv[1], V);
        check_seq_len(c, T);
        bench(c, B, T, steps);
        return 0;
    }
    bench(model_config("gpt2:124M"), 4, 256, 5);
    bench(model_config("gpt2:124M"), 2, 1024, 3);
    bench(model_config("gpt2:d6", 257), 8, 256, 5);
    bench(model_config("gpt2:d6", 50304), 8, 256, 5);
} catch (const Error& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return int(e.code);
}
