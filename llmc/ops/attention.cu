// Causal attention on CUDA: which kernels serve which tensors.
//   bf16, head size 64 or 128: tensor cores (attention_flash_forward.cuh, ..._backward.cuh)
//   everything else up to head size 256: fp32 arithmetic (attention_simt.cuh)
//   bf16 where the user asks for it: cuDNN (attention_cudnn.h)
// Backward is deterministic: dq has a kernel of its own that loops over keys, so no sum is shared
// between blocks. That recomputes the scores twice, seven products where atomics would need five.
#include "llmc/ops/attention.h"

#include <cmath>

#include "llmc/ops/attention_cudnn.h"
#include "llmc/ops/attention_flash_backward.cuh"
#include "llmc/ops/attention_flash_forward.cuh"
#include "llmc/ops/attention_simt.cuh"
#include "llmc/ops/kernel.cuh"

namespace {

// delta[b,h,t] = dout[b,t,h] . out[b,t,h]: 32 rows a block, 4 rows a warp. Reads both tensors once;
// bandwidth bounds it.
constexpr int kDeltaWarps = 8, kDeltaRows = 32;
template <class Elem>
__global__ void __launch_bounds__(32 * kDeltaWarps, 4)
    attention_delta_kernel(float* __restrict__ delta, const Elem* __restrict__ dout,
                           const Elem* __restrict__ out, int T, int H, int HS) {
    __shared__ float sums[kDeltaRows];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int first = blockIdx.x * kDeltaRows, h = blockIdx.y, b = blockIdx.z;
    for (int i = warp; i < kDeltaRows && first + i < T; i += kDeltaWarps) {
        const size_t row = ((size_t(b) * T + first + i) * H + h) * HS;
        float sum = 0;
        for (int d = lane; d < HS; d += 32) sum += as_float(dout[row + d]) * as_float(out[row + d]);
        sum = warp_sum(sum);
        if (lane == 0) sums[i] = sum;
    }
    __syncthreads();
    if (warp == 0 && first + lane < T) delta[(size_t(b) * H + h) * T + first + lane] = sums[lane];
}

AttentionShape shape_of(int B, int T, int H, int KV, int HS) {
    CHECK(KV > 0 && H % KV == 0, Exit::Usage,
          "attention: query heads must be a multiple of "
          "key/value heads",
          str(H, " and ", KV));
    CHECK(HS <= simt::kMostHS, Exit::Usage, "attention: head size too large for CUDA", str(HS),
          str("at most ", simt::kMostHS));
    return {B, T, H, KV, HS, 1 / std::sqrt(float(HS))};
}

// The tensor-core kernels copy rows by 16 bytes.
template <class Elem, class... P>
bool tensor_cores_serve(int HS, const P*... p) {
    return std::is_same_v<Elem, bf16> && (HS == 64 || HS == 128) && all_aligned(16, p...);
}

}  // namespace

size_t attention_forward_workspace_bytes(int B, int T, int H, int KV, int HS, CudaStream) {
    return attention_choice.cudnn ? attention_cudnn_workspace_bytes(B, T, H, KV, HS, false) : 0;
}

template <class Elem>
void attention_forward(Elem* out, float* lse, const Elem* qkv, int B, int T, int H, int KV, int HS,
                       Workspace ws, CudaStream s) {
    const AttentionShape p = shape_of(B, T, H, KV, HS);
    if (size_t(B) * T == 0) return;
    if constexpr (std::is_same_v<Elem, bf16>) {
        if (attention_choice.cudnn)
            return attention_cudnn_forward(out, lse, qkv, B, T, H, KV, HS, ws, s);
        if (tensor_cores_serve<Elem>(HS, out, qkv)) return flash::forward(out, lse, qkv, p, s);
    }
    simt::forward(out, lse, qkv, p, s);
}

size_t attention_backward_workspace_bytes(int B, int T, int H, int KV, int HS, CudaStream) {
    return attention_choice.cudnn ? attention_cudnn_workspace_bytes(B, T, H, KV, HS, true)
                                  : size_t(B) * T * H * sizeof(float);
}

template <class Elem>
void attention_backward(Elem* dqkv, const Elem* dout, const Elem* qkv, const Elem* out,
                        const float* lse, int B, int T, int H, int KV, int HS, Workspace ws,
                        CudaStream s) {
    const AttentionShape p = shape_of(B, T, H, KV, HS);
    if (size_t(B) * T == 0) return;
    if constexpr (std::is_same_v<Elem, bf16>)
        if (attention_choice.cudnn)
            return attention_cudnn_backward(dqkv, dout, qkv, out, lse, B, T, H, KV, HS, ws, s);
    workspace_check("attention_backward", ws,
                    attention_backward_workspace_bytes(B, T, H, KV, HS, s));
    float* delta = static_cast<float*>(ws.data);
    launch(attention_delta_kernel<Elem>, dim3(ceil_div(T, kDeltaRows), H, B), 32 * kDeltaWarps, 0,
           s, delta, dout, out, T, H, HS);
    if constexpr (std::is_same_v<Elem, bf16>)
        if (tensor_cores_serve<Elem>(HS, dqkv, dout, qkv))
            return flash::backward(dqkv, dout, qkv, lse, delta, p, s);
    simt::backward(dqkv, dout, qkv, lse, delta, p, s);
}

// clang-format off
#define INSTANTIATE(Elem)                                                                       \
    template void attention_forward(Elem*, float*, const Elem*, int, int, int, int, int,        \
                                    Workspace, CudaStream);                                     \
    template void attention_backward(Elem*, const Elem*, const Elem*, const Elem*, const float*, \
                                     int, int, int, int, int, Workspace, CudaStream);
// clang-format on
INSTANTIATE(float)
INSTANTIATE(bf16)
