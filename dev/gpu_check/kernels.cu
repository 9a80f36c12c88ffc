// Times every kernel at the shapes of GPT-2, one JSON object a line on stdout:
//   kernels [B [T [C [V]]]]      default: 8 1024 768 50257, GPT-2 124M
//   kernels gpu                  no more than the GPU's name, or why there is none
//
// What moves bytes is compared with a plain copy of device memory, what multiplies with a large
// bf16 matrix product, both measured here first. `bytes` and `flops` are the least that the
// definition of the op needs. Every call works on other memory than the last one, so nothing is
// found in a cache; values are random, since constants would let the clock rise. The median of five
// rounds is taken.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "llmc/core/launch.cuh"
#include "llmc/core/memory.h"
#include "llmc/core/rng.h"
#include "llmc/model/activations.h"
#include "llmc/model/config.h"
#include "llmc/ops/adamw.h"
#include "llmc/ops/attention.h"
#include "llmc/ops/attention_cudnn.h"
#include "llmc/ops/classifier.h"
#include "llmc/ops/cudnn_plan.h"
#include "llmc/ops/embedding.h"
#include "llmc/ops/gelu.h"
#include "llmc/ops/layernorm.h"
#include "llmc/ops/matmul.h"
#include "llmc/ops/reduce_sums.h"

namespace {
double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

// A ring of device memory full of random numbers: each request gets the next piece.
class Ring {
  public:
    Ring(Memory<CudaStream>& memory, int64_t bytes)
        : bytes_(bytes), base_(memory.get<char>("bench", "ring", bytes)) {
        // The same 2^20 normal deviates over and over, as bf16: as floats they are numbers too.
        std::vector<float> x(size_t(1) << 20);
        random_normal(x.data(), x.size(), 0, 0, 0.5f, 1, 1);
        std::vector<bf16> y(x.size());
        for (size_t i = 0; i < x.size(); i++) y[i] = to_bf16(x[i]);
        for (int64_t at = 0; at < bytes; at += int64_t(y.size() * sizeof(bf16)))
            memory_from_host(base_ + at, y.data(),
                             std::min(size_t(bytes - at), y.size() * sizeof(bf16)),
                             memory.stream());
    }
    template <class T>
    T* next(int64_t count) {
        const int64_t size = (count * int64_t(sizeof(T)) + 255) / 256 * 256;
        CHECK(size <= bytes_, Exit::Resource, "the ring is too small", str(size, " bytes"));
        if (at_ + size > bytes_) at_ = 0;
        T* p = reinterpret_cast<T*>(base_ + at_);
        at_ += size;
        return p;
    }

  private:
    int64_t bytes_, at_ = 0;
    char* base_;
};

// Seconds of one call: the median of five rounds of `calls` calls.
double seconds(CudaStream s, int calls, const std::function<void()>& call) {
    call();
    stream_sync(s);
    std::vector<double> rounds;
    for (int round = 0; round < 5; round++) {
        const double begin = now();
        for (int i = 0; i < calls; i++) call();
        stream_sync(s);
        rounds.push_back((now() - begin) / calls);
    }
    std::sort(rounds.begin(), rounds.end());
    return rounds[2];
}

struct Bench {
    Memory<CudaStream> memory;
    CudaStream s;
    int calls;
    double copy_rate = 0, gemm_rate = 0;  // bytes/s, flop/s

    // bytes or flops, whichever is not 0, is what the op needs at least.
    void row(const char* name, double bytes, double flops, const std::function<void()>& call) {
        const double t = seconds(s, calls, call);
        const double rate = (bytes > 0 ? bytes : flops) / t;
        std::printf("{\"kernel\":\"%s\",\"us\":%.2f,\"%s\":%.1f,\"share\":%.3f}\n", name, t * 1e6,
                    bytes > 0 ? "gb_per_s" : "tflops", rate * (bytes > 0 ? 1e-9 : 1e-12),
                    rate / (bytes > 0 ? copy_rate : gemm_rate));
        std::fflush(stdout);
    }
};

void ceilings(Bench& b, Ring& ring, int64_t copy_bytes, int n, Workspace ws) {
    const double copy = seconds(b.s, b.calls, [&] {
        void *to = ring.next<char>(copy_bytes), *from = ring.next<char>(copy_bytes);
        CUDA_CHECK(cudaMemcpyAsync(to, from, size_t(copy_bytes), cudaMemcpyDeviceToDevice,
                                   cuda_stream(b.s)));
    });
    b.copy_rate = 2 * double(copy_bytes) / copy;
    const double gemm = seconds(b.s, b.calls, [&] {
        const int64_t nn = int64_t(n) * n;
        const bf16* none = nullptr;
        bf16* y = ring.next<bf16>(nn);
        matmul_forward(y, ring.next<bf16>(nn), ring.next<bf16>(nn), none, n, n, n, ws, b.s);
    });
    b.gemm_rate = 2 * double(n) * n * n / gemm;
    const CudaDevice device = cuda_device();
    std::printf(
        "{\"device\":\"%s\",\"arch\":%d,\"memory\":%lld,\"copy_gb_per_s\":%.1f,"
        "\"gemm_n\":%d,\"gemm_tflops\":%.4g}\n",
        device.name.c_str(), device.arch, (long long)device.memory, b.copy_rate * 1e-9, n,
        b.gemm_rate * 1e-12);
}

void memory_bound(Bench& b, Ring& ring, int B, int T, int C, int V, Workspace ws,
                  const int* tokens) {
    const CudaStream s = b.s;
    const int64_t N = int64_t(B) * T, NC = N * C;
    const int n = int(N), Vp = vocab_padded(V);
    const auto E = [&](int64_t count) { return ring.next<bf16>(count); };
    const auto F = [&](int64_t count) { return ring.next<float>(count); };
    const double nc = 2 * double(NC);  // bytes of one (N, C) tensor

    b.row("embedding_forward", 2 * nc, 0, [&] {
        embedding_forward(E(NC), tokens, E(int64_t(Vp) * C), E(int64_t(T) * C), B, T, C, s);
    });
    b.row("embedding_backward", nc, 0, [&] {
        embedding_backward(F(int64_t(Vp) * C), F(int64_t(T) * C), E(NC), tokens, B, T, C, V, ws, s);
    });
    b.row("layernorm_forward", 2 * nc, 0,
          [&] { layernorm_forward(E(NC), F(N), F(N), E(NC), E(C), E(C), n, C, 1e-5f, s); });
    b.row("residual_layernorm_forward", 4 * nc, 0, [&] {
        bf16* residual = E(NC);
        residual_layernorm_forward(residual, E(NC), F(N), F(N), E(NC), E(NC), E(C), E(C), n, C,
                                   1e-5f, s);
    });
    b.row("residual_layernorm_backward", 4 * nc, 0, [&] {
        residual_layernorm_backward(E(NC), F(C), F(C), E(NC), E(NC), E(C), F(N), F(N), n, C, ws, s);
    });
    b.row("gelu_forward", 8 * nc, 0,
          [&] { gelu_forward(E(4 * NC), E(4 * NC), size_t(4 * NC), s); });
    b.row("gelu_backward", 12 * nc, 0,
          [&] { gelu_backward(E(4 * NC), E(4 * NC), E(4 * NC), size_t(4 * NC), s); });
    ModelConfig c;
    c.Vp = Vp;
    const int rows = head_rows<bf16>(c, N);
    b.row("classifier_forward_backward", 2 * 2 * double(rows) * Vp, 0, [&] {
        classifier_forward_backward(F(rows), E(int64_t(rows) * Vp), tokens, 1.f, rows, V, Vp, s);
    });
    const int64_t P = std::min<int64_t>(12 * int64_t(C) * C, int64_t(1) << 24);
    b.row("adamw_update", 34 * double(P), 0, [&] {
        float *p = F(P), *m = F(P), *v = F(P), *grad = F(P);
        adamw_update(p, E(P), m, v, grad, F(1), size_t(P), {1e-4f, 0.9f, 0.95f, 1e-8f, 0.1f, 5}, {},
                     s);
    });
    b.row("sum_of_squares", 4 * double(P), 0,
          [&] { sum_of_squares(ring.next<FixedSum>(1), F(P), size_t(P), s); });
    b.row("accumulate_fixed", 24 * double(P), 0, [&] {
        accumulate_fixed(ring.next<int64_t>(P), F(P), 1.f, ring.next<int>(1), size_t(P), s);
    });
}

void compute_bound(Bench& b, Ring& ring, int B, int T, int C, int Vp, Workspace ws) {
    const CudaStream s = b.s;
    const int64_t N = int64_t(B) * T;
    const int n = int(N), F4 = 4 * C, QKV = 3 * C;
    const auto E = [&](int64_t count) { return ring.next<bf16>(count); };
    const auto F = [&](int64_t count) { return ring.next<float>(count); };

    struct Layer {
        const char* name;
        int in, out;
    };
    for (const auto& [name, in, out] : {Layer{"qkv", C, QKV},
                                        {"attproj", C, C},
                                        {"fc", C, F4},
                                        {"fcproj", F4, C},
                                        {"head", C, Vp}}) {
        // The head works on as many rows as its logits have.
        ModelConfig c;
        c.Vp = Vp;
        const int rows = std::string(name) == "head" ? head_rows<bf16>(c, N) : n;
        const int64_t x = int64_t(rows) * in, y = int64_t(rows) * out, w = int64_t(in) * out;
        const double flops = 2.0 * double(rows) * in * out;
        b.row(str("matmul_forward ", name).c_str(), 0, flops, [&, in = in, out = out] {
            matmul_forward(E(y), E(x), E(w), E(out), rows, in, out, ws, s);
        });
        b.row(str("matmul_backward_input ", name).c_str(), 0, flops, [&, in = in, out = out] {
            matmul_backward_input(E(x), E(y), E(w), rows, in, out, ws, s);
        });
        b.row(str("matmul_backward_params ", name).c_str(), 0, flops, [&, in = in, out = out] {
            matmul_backward_params(F(w), F(out), E(y), E(x), rows, in, out, ws, s);
        });
    }
    b.row("matmul_gelu_forward fc", 0, 2.0 * double(N) * C * F4, [&] {
        matmul_gelu_forward(E(N * F4), E(N * F4), E(N * C), E(int64_t(C) * F4), E(F4), n, C, F4, ws,
                            s);
    });
}

// Causal: half of the T x T products; two of them forward, five backward.
void attention(Bench& b, Ring& ring, const std::string& whose, int B, int T, int C) {
    const int HS = 64, H = C / HS;
    const int64_t N = int64_t(B) * T;
    const auto E = [&](int64_t width) { return ring.next<bf16>(N * width); };
    const auto lse = [&] { return ring.next<float>(N * H); };
    const double product = 2.0 * B * H * double(T) * T * HS / 2;
    const CudaStream s = b.s;
    const Workspace ws = b.memory.workspace(
        "attention", std::max(attention_forward_workspace_bytes(B, T, H, H, HS, s),
                              attention_backward_workspace_bytes(B, T, H, H, HS, s)));
    b.row(("attention_forward" + whose).c_str(), 0, 2 * product,
          [&] { attention_forward(E(C), lse(), E(3 * C), B, T, H, H, HS, ws, s); });
    b.row(("attention_backward" + whose).c_str(), 0, 5 * product, [&] {
        attention_backward(E(3 * C), E(C), E(3 * C), E(C), lse(), B, T, H, H, HS, ws, s);
    });
}

// cuDNN's beside ours, where the build and the machine have it.
void cudnn_attention(Bench& b, Ring& ring, int B, int T, int C) {
    try {
        cudnn::load();
    } catch (const Error& e) {
        std::fprintf(stderr, "no times of cuDNN: %s\n", e.what());
        return;
    }
    for (const bool deterministic : {true, false}) {
        attention_choice = {true, deterministic};
        attention(b, ring, deterministic ? " cuDNN" : " cuDNN fast", B, T, C);
    }
    attention_choice = {};
}
}  // namespace

int main(int argc, char** argv) try {
    const auto number = [&](int i, int otherwise) {
        return argc > i ? std::atoi(argv[i]) : otherwise;
    };
    const int B = number(1, 8), T = number(2, 1024), C = number(3, 768), V = number(4, 50257);
    const bool small = int64_t(B) * T < 4096;  // a test of this program, not of a GPU
    CHECK(cuda_device_count() > 0, Exit::Usage, "no GPU can be used", cuda_absence());
    if (argc == 2 && std::string(argv[1]) == "gpu") return std::puts(cuda_device().name.c_str()), 0;
    CHECK(B > 0 && T > 0 && C > 0 && C % 64 == 0 && V > 0, Exit::Usage, "bad sizes", "",
          "B T C V, C a multiple of 64");

    const StreamOwner<CudaStream> stream;
    Bench b{Memory<CudaStream>(stream.get()), stream.get(), small ? 1 : 20};
    const int64_t N = int64_t(B) * T;
    Ring ring(b.memory, small ? int64_t(256) << 20 : int64_t(4) << 30);
    const size_t scratch = std::max({matmul_workspace_bytes(int(N), C, vocab_padded(V), b.s),
                                     layernorm_backward_workspace_bytes(int(N), C, b.s),
                                     embedding_backward_workspace_bytes(B, T, C, V, b.s)});
    const Workspace ws = b.memory.workspace("ops", scratch);
    std::vector<int> ids(static_cast<size_t>(N));
    for (size_t i = 0; i < ids.size(); i++) ids[i] = int(random_bits(1, 2, i) % unsigned(V));
    int* tokens = b.memory.get<int>("bench", "tokens", N);
    memory_from_host(tokens, ids.data(), ids.size() * sizeof(int), b.s);

    ceilings(b, ring, small ? 1 << 20 : 512 << 20, small ? 128 : 8192, ws);
    memory_bound(b, ring, B, T, C, V, ws, tokens);
    compute_bound(b, ring, B, T, C, vocab_padded(V), ws);
    attention(b, ring, "", B, T, C);
    cudnn_attention(b, ring, B, T, C);
    return 0;
} catch (const Error& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return int(e.code);
}
