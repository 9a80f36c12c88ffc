// Softmax, cross-entropy and the gradient of the logits on CUDA: a block a row.
//
// The row comes in once by asynchronous 16-byte copies and stays in shared memory (98 KiB for
// GPT-2 in bf16) for its three passes: maximum, sum of exponentials, gradient; what does not fit
// there is read again, from L2. Each thread touches only packets that it copied itself, so the
// copies need no barrier. Bytes an element: logits read once, dlogits written once, in place; the
// bandwidth of device memory bounds it, the exponentials (two an element) come close behind.
#include "llmc/ops/classifier.h"

#include "llmc/core/tensorop.cuh"
#include "llmc/ops/kernel.cuh"

namespace {

constexpr int kThreads = 512;
constexpr float kLog2e = 1.44269504f;

// Shared memory for a row: two blocks a multiprocessor on sm_90, one on sm_80 and sm_89.
constexpr int kRowBytes = 98 * 1024 + 512;

// One row of logits, V of them valid, seen as packets; the first `kept` packets of a row live in
// shared memory.
template <class Elem, bool kAligned>
struct Row {
    using Packet = Packed128<Elem>;
    Elem* global;
    Elem* shared;
    int Vp, kept;

    __device__ __forceinline__ void fetch(int first, int step) {
        if constexpr (kAligned) {
            for (int i = first; i < kept; i += step)
                cp_async_16(shared + i * Packet::size, global + i * Packet::size);
            cp_async_commit();
            cp_async_wait_group<0>();
        } else {
            for (int i = first; i < kept; i += step)
                store128(shared + i * Packet::size,
                         packet_load<false>(global, i * Packet::size, Vp));
        }
    }
    __device__ __forceinline__ Packet load(int i) const {
        if (i < kept) return load128(shared + i * Packet::size);
        return packet_load_shared<kAligned>(global, i * Packet::size, Vp);
    }
    __device__ __forceinline__ Elem at(int v) const {
        return v / Packet::size < kept ? shared[v] : global[v];
    }
    __device__ __forceinline__ void store(int i, const Packet& x) {
        packet_store<kAligned>(global, i * Packet::size, Vp, x);
    }
};

template <class Elem, bool kGradient, bool kAligned>
__global__ void __launch_bounds__(kThreads, 2)
    classifier_kernel(float* __restrict__ losses, Elem* logits, const int* __restrict__ targets,
                      float scale, int V, int Vp, int kept) {
    using Packet = Packed128<Elem>;
    const size_t n = blockIdx.x;
    const int target = targets[n], packets = ceil_div(Vp, Packet::size);
    const int used = ceil_div(V, Packet::size);  // packets with any valid column
    Row<Elem, kAligned> row{logits + n * Vp, dyn_smem<Elem>(), Vp, kept};

    // The whole block takes this way or none of it.
    if (target == kIgnoreTarget) {
        if (threadIdx.x == 0) losses[n] = 0;
        if constexpr (kGradient) {
            const Packet zeros{};
            for (int i = threadIdx.x; i < packets; i += kThreads) row.store(i, zeros);
        }
        return;
    }

    row.fetch(threadIdx.x, kThreads);
    float most = -INFINITY;
    for (int i = threadIdx.x; i < used; i += kThreads) {
        const Packet x = row.load(i);
#pragma unroll
        for (int k = 0; k < Packet::size; k++)
            if (i * Packet::size + k < V) most = fmaxf(most, as_float(x[k]));
    }
    most = block_max<kThreads>(most);

    float sum = 0;
    for (int i = threadIdx.x; i < used; i += kThreads) {
        const Packet x = row.load(i);
#pragma unroll
        for (int k = 0; k < Packet::size; k++)
            if (i * Packet::size + k < V) sum += exp2f((as_float(x[k]) - most) * kLog2e);
    }
    sum = block_sum<kThreads>(sum);

    // The thread that holds the target's packet writes the loss: nobody overwrites it before.
    if (target / Packet::size % kThreads == int(threadIdx.x))
        losses[n] = logf(sum) + most - as_float(row.at(target));

    if constexpr (kGradient) {
        const float factor = scale / sum;
        for (int i = threadIdx.x; i < packets; i += kThreads) {
            Packet out{};
            if (i < used) {
                const Packet x = row.load(i);
#pragma unroll
                for (int k = 0; k < Packet::size; k++) {
                    const int v = i * Packet::size + k;
                    float d = exp2f((as_float(x[k]) - most) * kLog2e) * factor;
                    if (v == target) d -= scale;
                    out[k] = as_elem<Elem>(v < V ? d : 0.f);
                }
            }
            row.store(i, out);
        }
    }
}

template <bool kGradient, class Elem>
void classifier_launch(float* losses, Elem* logits, const int* targets, float scale, int N, int V,
                       int Vp, CudaStream s) {
    if (N == 0) return;
    const int packets = ceil_div(V, Packed128<Elem>::size);
    const int kept = min(packets, kRowBytes / 16);
    launch(rows_aligned<Elem>(Vp, logits) ? classifier_kernel<Elem, kGradient, true>
                                          : classifier_kernel<Elem, kGradient, false>,
           N, kThreads, size_t(kept) * 16, s, losses, logits, targets, scale, V, Vp, kept);
}

}  // namespace

template <class Elem>
void classifier_forward(float* losses, const Elem* logits, const int* targets, int N, int V, int Vp,
                        CudaStream s) {
    // The kernel without gradient writes no logits.
    classifier_launch<false>(losses, const_cast<Elem*>(logits), targets, 0.f, N, V, Vp, s);
}

template <class Elem>
void classifier_forward_backward(float* losses, Elem* logits, const int* targets, float scale,
                                 int N, int V, int Vp, CudaStream s) {
    classifier_launch<true>(losses, logits, targets, scale, N, V, Vp, s);
}

// clang-format off
#define INSTANTIATE(Elem)                                                                        \
    template void classifier_forward(float*, const Elem*, const int*, int, int, int, CudaStream); \
    template void classifier_forward_backward(float*, Elem*, const int*, float, int, int, int,   \
                                              CudaStream);
// clang-format on
INSTANTIATE(float)
INSTANTIATE(bf16)
