// dev/ladder/classifier.cu: softmax, cross-entropy and gradient in place of the logits, bf16.
// A row of GPT-2 is 98 KiB: how often it comes from memory is everything.
#include "dev/ladder/ladder.cuh"
#include "llmc/ops/classifier.h"

namespace {

constexpr int kThreads = 512;

// 1. A thread a row: maximum, sum, gradient. Lanes read addresses 98 KiB apart.
__global__ void thread_a_row(float* losses, bf16* logits, const int* targets, float scale, int N,
                             int V, int Vp) {
    const int n = blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= N) return;
    bf16* x = logits + size_t(n) * Vp;
    float most = -INFINITY, sum = 0;
    for (int v = 0; v < V; v++) most = fmaxf(most, as_float(x[v]));
    for (int v = 0; v < V; v++) sum += expf(as_float(x[v]) - most);
    losses[n] = logf(sum) + most - as_float(x[targets[n]]);
    for (int v = 0; v < Vp; v++) {
        const float p = v < V ? expf(as_float(x[v]) - most) / sum : 0.f;
        x[v] = as_elem<bf16>(scale * (p - (v == targets[n] ? 1.f : 0.f)));
    }
}

// 2. A block a row: whole sectors, and 512 threads share the work. Two reductions, two barriers
// each.
__global__ void __launch_bounds__(kThreads)
    block_a_row(float* losses, bf16* logits, const int* targets, float scale, int, int V, int Vp) {
    const int n = blockIdx.x, target = targets[n];
    bf16* x = logits + size_t(n) * Vp;
    float most = -INFINITY, sum = 0;
    for (int v = threadIdx.x; v < V; v += kThreads) most = fmaxf(most, as_float(x[v]));
    most = block_max<kThreads>(most);
    for (int v = threadIdx.x; v < V; v += kThreads) sum += expf(as_float(x[v]) - most);
    sum = block_sum<kThreads>(sum);
    if (target % kThreads == int(threadIdx.x)) losses[n] = logf(sum) + most - as_float(x[target]);
    for (int v = threadIdx.x; v < Vp; v += kThreads) {
        const float p = v < V ? expf(as_float(x[v]) - most) / sum : 0.f;
        x[v] = as_elem<bf16>(scale * (p - (v == target ? 1.f : 0.f)));
    }
}

// A running maximum and the sum of exponentials relative to it.
struct Running {
    float most = -INFINITY, sum = 0;
    __device__ void add(float x) {
        if (x > most) {
            sum *= expf(most - x);
            most = x;
        }
        sum += expf(x - most);
    }
};

// 3. Online: maximum and sum in one pass; the row is read twice instead of three times.
__global__ void __launch_bounds__(kThreads)
    online(float* losses, bf16* logits, const int* targets, float scale, int, int V, int Vp) {
    const int n = blockIdx.x, target = targets[n];
    bf16* x = logits + size_t(n) * Vp;
    Running mine;
    for (int v = threadIdx.x; v < V; v += kThreads) mine.add(as_float(x[v]));
    const float most = block_max<kThreads>(mine.most);
    const float sum = block_sum<kThreads>(mine.sum * expf(mine.most - most));
    if (target % kThreads == int(threadIdx.x)) losses[n] = logf(sum) + most - as_float(x[target]);
    for (int v = threadIdx.x; v < Vp; v += kThreads) {
        const float p = v < V ? expf(as_float(x[v]) - most) / sum : 0.f;
        x[v] = as_elem<bf16>(scale * (p - (v == target ? 1.f : 0.f)));
    }
}

// 4. 16 bytes a lane (Vp is a multiple of 8).
__global__ void __launch_bounds__(kThreads)
    wide(float* losses, bf16* logits, const int* targets, float scale, int, int V, int Vp) {
    using Packet = Packed128<bf16>;
    const int n = blockIdx.x, target = targets[n];
    bf16* x = logits + size_t(n) * Vp;
    Running mine;
    for (int v = 8 * threadIdx.x; v < V; v += 8 * kThreads) {
        const Packet packet = load128(x + v);
        for (int k = 0; k < 8; k++)
            if (v + k < V) mine.add(as_float(packet[k]));
    }
    const float most = block_max<kThreads>(mine.most);
    const float sum = block_sum<kThreads>(mine.sum > 0 ? mine.sum * expf(mine.most - most) : 0.f);
    if (target / 8 % kThreads == int(threadIdx.x))
        losses[n] = logf(sum) + most - as_float(x[target]);
    for (int v = 8 * threadIdx.x; v < Vp; v += 8 * kThreads) {
        Packet packet = load128(x + v);
        for (int k = 0; k < 8; k++) {
            const float p = v + k < V ? expf(as_float(packet[k]) - most) / sum : 0.f;
            packet[k] = as_elem<bf16>(scale * (p - (v + k == target ? 1.f : 0.f)));
        }
        store128(x + v, packet);
    }
}

}  // namespace

void classifier_ladder() {
    const int N = 2, V = 50257, Vp = 50304;
    const float scale = 1;
    const std::vector<bf16> logits = random_bf16(size_t(N) * Vp, "logits", 3);
    const std::vector<int> targets = {17, 50256};
    std::vector<float> expected = widen(logits), losses(N);
    classifier_forward_backward(losses.data(), expected.data(), targets.data(), scale, N, V, Vp,
                                kCpu);
    const Device<bf16> x(logits.size());
    const Device<int> gtargets(targets);
    const Device<float> glosses(N);
    const auto clear = [&] {
        memory_from_host(x, logits.data(), logits.size() * sizeof(bf16), kCuda);
    };
    const auto error = [&] {
        double worst = relative_error(x.host(), expected);
        const std::vector<float> found = glosses.host();
        for (int n = 0; n < N; n++)
            worst = std::max(worst, std::fabs(double(found[n]) - losses[n]) / losses[n]);
        return worst;
    };
    Ladder ladder("classifier forward and backward, N = 2, V = 50257 of 50304, bf16",
                  2.0 * logits.size() * sizeof(bf16), 0x1.1p-8);
    const auto rung = [&](const char* name, const char* buys, auto kernel, int blocks,
                          int threads) {
        ladder.rung(
            name, buys, clear,
            [=, &x, &gtargets, &glosses] {
                launch(kernel, blocks, threads, 0, kCuda, glosses, x, gtargets, scale, N, V, Vp);
            },
            error);
    };
    rung("a thread a row", "nothing yet", thread_a_row, 1, 32);
    rung("a block a row", "whole sectors, 512 threads a row", block_a_row, N, kThreads);
    rung("online softmax", "two reads of the row instead of three", online, N, kThreads);
    rung("16 bytes a lane", "an eighth of the requests", wide, N, kThreads);
    ladder.rung(
        "shipped: the row stays in shared memory", "one read; every request is asynchronous", clear,
        [&] { classifier_forward_backward<bf16>(glosses, x, gtargets, scale, N, V, Vp, kCuda); },
        error);
}
