// Token and position vectors on CUDA.
//
// Forward: a thread a packet of 16 bytes. Bytes an element: write x; the rows of wte and wpe that
// are used are read, mostly from the caches. Bandwidth bounds it.
//
// Backward, without float atomics: the positions of one token are brought together in ascending
// order (count, place, fill, rank: integer work on B*T numbers); then the thread that comes by the
// first of them adds up the rows of all, in that order. The order is the CPU's, and so are the
// bits. Bytes an element: read dx once for dwpe and for the first row of each token, and the rows
// of its later occurrences once more, from L2 where that holds dx; read and write dwpe and the rows
// of dwte in use. Bandwidth bounds it unless one token fills the batch.
#include "llmc/ops/embedding.h"

#include "llmc/ops/kernel.cuh"

namespace {

constexpr int kThreads = 256;

template <class Elem, bool kAligned>
__global__ void __launch_bounds__(kThreads, 4)
    embedding_forward_kernel(Elem* __restrict__ x, const int* __restrict__ tokens,
                             const Elem* __restrict__ wte, const Elem* __restrict__ wpe,
                             size_t packets, int row_packets, int T, int C) {
    using Packet = Packed128<Elem>;
    const size_t i = size_t(blockIdx.x) * kThreads + threadIdx.x;
    if (i >= packets) return;

    const size_t n = i / row_packets;
    const int c = int(i % row_packets) * Packet::size;
    Packet v = packet_load_shared<kAligned>(wte + size_t(tokens[n]) * C, c, C);
    if (wpe) {
        const Packet p = packet_load_shared<kAligned>(wpe + n % T * C, c, C);
#pragma unroll
        for (int k = 0; k < Packet::size; k++)
            v[k] = as_elem<Elem>(as_float(v[k]) + as_float(p[k]));
    }
    packet_store<kAligned>(x + n * C, c, C, v);
}

// ---- backward: the workspace, all int
struct Buckets {
    int* count;     // (V)  how often each token occurs
    int* start;     // (V)  where its positions start in the two lists below
    int* used;      // (1)  length of the lists so far
    int* arrival;   // (N)  position n was the arrival[n]-th of its token to be counted
    int* unsorted;  // (N)  positions by token, in no particular order inside one
    int* sorted;    // (N)  positions by token, ascending inside each
};
Buckets buckets_at(void* workspace, size_t N, size_t V) {
    int* p = static_cast<int*>(workspace);
    return {p, p + V + 1, p + V, p + 2 * V + 1, p + 2 * V + 1 + N, p + 2 * V + 1 + 2 * N};
}

__global__ void bucket_count_kernel(Buckets b, const int* __restrict__ tokens, int N) {
    const int n = blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= N) return;
    b.arrival[n] = atomicAdd(&b.count[tokens[n]], 1);
}

// The first to be counted asks for room. Which token gets which part of the lists depends on
// timing, but no sum depends on that.
__global__ void bucket_place_kernel(Buckets b, const int* __restrict__ tokens, int N) {
    const int n = blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= N || b.arrival[n] != 0) return;
    b.start[tokens[n]] = atomicAdd(b.used, b.count[tokens[n]]);
}

__global__ void bucket_fill_kernel(Buckets b, const int* __restrict__ tokens, int N) {
    const int n = blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= N) return;
    b.unsorted[b.start[tokens[n]] + b.arrival[n]] = n;
}

// The rank of a position is the number of smaller ones in its bucket. Quadratic in the size of a
// bucket: in text the largest holds some 5 % of the positions; if all tokens are equal, N = 32768
// costs 10^9 comparisons, well under a millisecond.
__global__ void bucket_rank_kernel(Buckets b, const int* __restrict__ tokens, int N) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= N) return;
    const int n = b.unsorted[i], v = tokens[n], start = b.start[v], count = b.count[v];
    int rank = 0;
    for (int j = start; j < start + count; j++) rank += b.unsorted[j] < n;
    b.sorted[start + rank] = n;
}

template <class Elem>
__device__ __forceinline__ void add(Quad<float>& sum, const Quad<Elem>& d) {
#pragma unroll
    for (int k = 0; k < 4; k++) sum[k] += as_float(d[k]);
}

// A thread a quad of columns and a position t in all sequences, in order: their dx goes to dwpe[t],
// and that of a token's first occurrence, with all later ones, to dwte.
template <class Elem, bool kAligned>
__global__ void __launch_bounds__(kThreads, 4)
    embedding_backward_kernel(float* __restrict__ dwte, float* __restrict__ dwpe,
                              const Elem* __restrict__ dx, const int* __restrict__ tokens,
                              Buckets buckets, size_t quads, int row_quads, int B, int T, int C) {
    const size_t i = size_t(blockIdx.x) * kThreads + threadIdx.x;
    if (i >= quads) return;

    const int t = int(i / row_quads), c = int(i % row_quads) * 4;
    const auto dx_row = [&](int n) { return row_quad_load<kAligned>(dx + size_t(n) * C, c, C); };
    Quad<float> at_t{};
    if (dwpe) at_t = row_quad_load<kAligned>(dwpe + size_t(t) * C, c, C);
    for (int b = 0; b < B; b++) {
        const int n = b * T + t, v = tokens[n], start = buckets.start[v];
        const Quad<Elem> d = dx_row(n);
        add(at_t, d);
        if (buckets.sorted[start] != n) continue;

        float* out = dwte + size_t(v) * C;
        Quad<float> sum = row_quad_load<kAligned>(out, c, C);
        add(sum, d);
        const int end = start + buckets.count[v];
        for (int j = start + 1; j < end; j++) add(sum, dx_row(buckets.sorted[j]));
        row_quad_store<kAligned>(out, c, C, sum);
    }
    if (dwpe) row_quad_store<kAligned>(dwpe + size_t(t) * C, c, C, at_t);
}

}  // namespace

template <class Elem>
void embedding_forward(Elem* x, const int* tokens, const Elem* wte, const Elem* wpe, int B, int T,
                       int C, CudaStream s) {
    const int row_packets = ceil_div(C, Packed128<Elem>::size);
    const size_t packets = size_t(B) * T * row_packets;
    if (packets == 0) return;
    launch(rows_aligned<Elem>(C, x, wte, wpe) ? embedding_forward_kernel<Elem, true>
                                              : embedding_forward_kernel<Elem, false>,
           blocks_for(packets, kThreads), kThreads, 0, s, x, tokens, wte, wpe, packets, row_packets,
           T, C);
}

size_t embedding_backward_workspace_bytes(int B, int T, int, int V, CudaStream) {
    return (2 * size_t(V) + 1 + 3 * size_t(B) * T) * sizeof(int);
}

template <class Elem>
void embedding_backward(float* dwte, float* dwpe, const Elem* dx, const int* tokens, int B, int T,
                        int C, int V, Workspace ws, CudaStream s) {
    CHECK(size_t(B) * T <= 0x7fffffff, Exit::Usage, "too many tokens in one micro-batch",
          str("B*T = ", size_t(B) * T));
    workspace_check("embedding_backward", ws, embedding_backward_workspace_bytes(B, T, C, V, s));
    const int N = B * T, row_quads = ceil_div(C, 4);
    if (N == 0) return;
    const Buckets b = buckets_at(ws.data, N, V);
    memory_zero(b.count, (size_t(V) + 1) * sizeof(int), s);  // `used` lies behind the counts
    launch(bucket_count_kernel, blocks_for(N, kThreads), kThreads, 0, s, b, tokens, N);
    launch(bucket_place_kernel, blocks_for(N, kThreads), kThreads, 0, s, b, tokens, N);
    launch(bucket_fill_kernel, blocks_for(N, kThreads), kThreads, 0, s, b, tokens, N);
    launch(bucket_rank_kernel, blocks_for(N, kThreads), kThreads, 0, s, b, tokens, N);
    // Without positions the batch is one long sequence, which gives the most threads.
    if (!dwpe) T = N, B = 1;
    const size_t quads = size_t(T) * row_quads;
    launch(rows_aligned<Elem>(C, dwte, dwpe, dx) ? embedding_backward_kernel<Elem, true>
                                                 : embedding_backward_kernel<Elem, false>,
           blocks_for(quads, kThreads), kThreads, 0, s, dwte, dwpe, dx, tokens, b, quads, row_quads,
           B, T, C);
}

// clang-format off
#define INSTANTIATE(Elem)                                                                       \
    template void embedding_forward(Elem*, const int*, const Elem*, const Elem*, int, int, int, \
                                    CudaStream);                                                \
    template void embedding_backward(float*, float*, const Elem*, const int*, int, int, int,    \
                                     int, Workspace, CudaStream);
// clang-format on
INSTANTIATE(float)
INSTANTIATE(bf16)
