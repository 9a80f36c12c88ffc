// Token and position vectors on CUDA.
//
// Forward: a thread a packet of 16 bytes. Bytes an element: write x; the rows of wte and wpe that
// are used are read, mostly from the caches. Bandwidth bounds it.
//
// Backward, without float atomics: the positions of one token are brought together in ascending
// order (count, place, fill, rank: integer work on B*T numbers), then one warp adds up the rows of
// one token for some columns, in that order. The order is the CPU's, and so are the bits. Bytes an
// element: read dx once for dwte and once for dwpe, read and write the rows of dwte in use and of
// dwpe; bandwidth bounds it unless one token fills the batch.
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

// Which token gets which part of the lists depends on timing, but no sum depends on that.
__global__ void bucket_place_kernel(Buckets b, int V) {
    const int v = blockIdx.x * blockDim.x + threadIdx.x;
    if (v >= V) return;
    if (b.count[v] > 0) b.start[v] = atomicAdd(b.used, b.count[v]);
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

// A warp a bucket and 32 quads of columns. The warp of the bucket's first entry does the work.
template <class Elem, bool kAligned>
__global__ void __launch_bounds__(kThreads, 4)
    embedding_backward_tokens_kernel(float* __restrict__ dwte, const Elem* __restrict__ dx,
                                     const int* __restrict__ tokens, Buckets b, int N, int C) {
    const int i = blockIdx.x * (kThreads / 32) + threadIdx.x / 32;
    const int c = (blockIdx.y * 32 + threadIdx.x % 32) * 4;
    if (i >= N || c >= C) return;
    const int v = tokens[b.sorted[i]], start = b.start[v], count = b.count[v];
    if (i != start) return;

    float* out = dwte + size_t(v) * C;
    Quad<float> sum = row_quad_load<kAligned>(out, c, C);
    for (int j = start; j < start + count; j++) {
        const Quad<Elem> d = row_quad_load<kAligned>(dx + size_t(b.sorted[j]) * C, c, C);
#pragma unroll
        for (int k = 0; k < 4; k++) sum[k] += as_float(d[k]);
    }
    row_quad_store<kAligned>(out, c, C, sum);
}

// A thread a quad of dwpe: adds the rows of all sequences in order.
template <class Elem, bool kAligned>
__global__ void __launch_bounds__(kThreads, 4)
    embedding_backward_positions_kernel(float* __restrict__ dwpe, const Elem* __restrict__ dx,
                                        size_t quads, int row_quads, int B, int T, int C) {
    const size_t i = size_t(blockIdx.x) * kThreads + threadIdx.x;
    if (i >= quads) return;

    const size_t t = i / row_quads;
    const int c = int(i % row_quads) * 4;
    Quad<float> sum = row_quad_load<kAligned>(dwpe + t * C, c, C);
    for (int b = 0; b < B; b++) {
        const Quad<Elem> d = row_quad_load<kAligned>(dx + (size_t(b) * T + t) * C, c, C);
#pragma unroll
        for (int k = 0; k < 4; k++) sum[k] += as_float(d[k]);
    }
    row_quad_store<kAligned>(dwpe + t * C, c, C, sum);
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
    CHECK(ws.bytes >= embedding_backward_workspace_bytes(B, T, C, V, s), Exit::Resource,
          "embedding_backward: the workspace is too small", str(ws.bytes, " bytes"));
    const int N = B * T, row_quads = ceil_div(C, 4);
    if (N == 0) return;
    const Buckets b = buckets_at(ws.data, N, V);
    memory_zero(b.count, (size_t(V) + 1) * sizeof(int), s);  // `used` lies behind the counts
    launch(bucket_count_kernel, blocks_for(N, kThreads), kThreads, 0, s, b, tokens, N);
    launch(bucket_place_kernel, blocks_for(V, kThreads), kThreads, 0, s, b, V);
    launch(bucket_fill_kernel, blocks_for(N, kThreads), kThreads, 0, s, b, tokens, N);
    launch(bucket_rank_kernel, blocks_for(N, kThreads), kThreads, 0, s, b, tokens, N);
    launch(rows_aligned<Elem>(C, dwte, dx) ? embedding_backward_tokens_kernel<Elem, true>
                                           : embedding_backward_tokens_kernel<Elem, false>,
           dim3(ceil_div(N, kThreads / 32), ceil_div(row_quads, 32)), kThreads, 0, s, dwte, dx,
           tokens, b, N, C);
    if (!dwpe) return;
    const size_t quads = size_t(T) * row_quads;
    launch(rows_aligned<Elem>(C, dwpe, dx) ? embedding_backward_positions_kernel<Elem, true>
                                           : embedding_backward_positions_kernel<Elem, false>,
           blocks_for(quads, kThreads), kThreads, 0, s, dwpe, dx, quads, row_quads, B, T, C);
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
