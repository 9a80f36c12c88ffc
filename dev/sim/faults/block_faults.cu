// Planted faults inside a block: barriers, warp collectives, asynchronous copies, atomics.
#include "fault.h"

// ---- barriers

// Reverses each block's 128 values through shared memory.
template <bool kWrong>
__global__ void reverse_kernel(float* x) {
    __shared__ float s[128];
    const int t = threadIdx.x;
    float* mine = x + blockIdx.x * 128;
    s[t] = mine[t];
    if (!kWrong) __syncthreads();
    mine[t] = s[127 - t];
}
CASE(missing_syncthreads) {
    float* x = device_floats(1024, Content::Numbers);
    LAUNCH_EITHER(reverse_kernel, 8, 128, 0, x);
    expect_values(host_copy(x, 1024), [](int i) { return float(i / 128 * 128 + 127 - i % 128); });
}

template <bool kWrong>
__global__ void barrier_in_branch_kernel(float* x) {
    if (threadIdx.x < 32) {
        x[threadIdx.x] += 1;
        if (kWrong) __syncthreads();
    }
    if (!kWrong) __syncthreads();
    x[threadIdx.x] += 1;
}
CASE(barrier_in_branch) {
    float* x = device_floats(64, Content::Numbers);
    LAUNCH_EITHER(barrier_in_branch_kernel, 1, 64, 0, x);
    expect_values(host_copy(x, 64), [](int i) { return float(i + (i < 32 ? 2 : 1)); });
}

// Two barriers, one for each half of the block: on a GPU this may even work.
template <bool kWrong>
__global__ void two_barriers_kernel(float* x) {
    if (!kWrong) {
        x[threadIdx.x] += 1;
        __syncthreads();
    } else if (threadIdx.x < 32) {
        x[threadIdx.x] += 1;
        __syncthreads();
    } else {
        x[threadIdx.x] += 1;
        __syncthreads();
    }
}
CASE(two_barriers) {
    float* x = device_floats(64, Content::Numbers);
    LAUNCH_EITHER(two_barriers_kernel, 1, 64, 0, x);
    expect_values(host_copy(x, 64), [](int i) { return float(i + 1); });
}

template <bool kWrong>
__global__ void exit_before_barrier_kernel(float* x, int n) {
    const int i = threadIdx.x;
    if (kWrong && i >= n) return;
    if (i < n) x[i] += 1;
    __syncthreads();
    if (i < n) x[i] += 1;
}
CASE(exit_before_barrier) {
    float* x = device_floats(50, Content::Numbers);
    LAUNCH_EITHER(exit_before_barrier_kernel, 1, 64, 0, x, 50);
    expect_values(host_copy(x, 50), [](int i) { return float(i + 2); });
}

// ---- warps

template <bool kWrong>
__global__ void warp_reverse_kernel(float* x) {
    __shared__ float s[32];
    const int t = threadIdx.x;
    s[t] = x[t];
    if (!kWrong) __syncwarp();
    x[t] = s[31 - t];
}
CASE(missing_syncwarp) {
    float* x = device_floats(32, Content::Numbers);
    LAUNCH_EITHER(warp_reverse_kernel, 1, 32, 0, x);
    expect_values(host_copy(x, 32), [](int i) { return float(31 - i); });
}

// Each half of the warp synchronises with itself, then reads the other half.
template <bool kWrong>
__global__ void half_mask_kernel(float* x) {
    __shared__ float s[32];
    const int t = threadIdx.x;
    s[t] = x[t];
    __syncwarp(!kWrong ? 0xffffffffu : t < 16 ? 0x0000ffffu : 0xffff0000u);
    x[t] = s[t ^ 16];
}
CASE(syncwarp_of_halves) {
    float* x = device_floats(32, Content::Numbers);
    LAUNCH_EITHER(half_mask_kernel, 1, 32, 0, x);
    expect_values(host_copy(x, 32), [](int i) { return float(i ^ 16); });
}

// The full mask, but only half of the lanes come.
template <bool kWrong>
__global__ void collective_in_branch_kernel(float* x) {
    const int lane = threadIdx.x;
    if (lane < 16) x[lane] = __shfl_xor_sync(kWrong ? 0xffffffffu : 0x0000ffffu, float(lane), 1);
    __syncwarp();
}
CASE(collective_in_branch) {
    float* x = device_floats(16, Content::Numbers);
    LAUNCH_EITHER(collective_in_branch_kernel, 1, 32, 0, x);
    expect_values(host_copy(x, 16), [](int i) { return float(i ^ 1); });
}

template <bool kWrong>
__global__ void absent_lane_kernel(float* x) {
    const int lane = threadIdx.x;
    if (lane < 16) x[lane] = __shfl_sync(0x0000ffffu, float(lane), kWrong ? 20 : 5);
}
CASE(shuffle_from_absent_lane) {
    float* x = device_floats(16, Content::Numbers);
    LAUNCH_EITHER(absent_lane_kernel, 1, 32, 0, x);
    expect_values(host_copy(x, 16), [](int) { return 5.0f; });
}

template <bool kWrong>
__global__ void outside_mask_kernel(float* x) {
    __syncwarp(kWrong ? 0x0000ffffu : 0xffffffffu);
    x[threadIdx.x] += 1;
}
CASE(lane_outside_its_mask) {
    float* x = device_floats(32, Content::Numbers);
    LAUNCH_EITHER(outside_mask_kernel, 1, 32, 0, x);
    expect_values(host_copy(x, 32), [](int i) { return float(i + 1); });
}

// ---- cp.async: tiles of 128 values through two stages, each read in reverse and summed

enum class Pipe { Right, NoWait, NoCommit, NoBarrierAfterWait, NoBarrierBeforeRefill };
template <Pipe kFault>
__global__ void pipe_kernel(float* out, const float* x, int tiles) {
    __shared__ __align__(16) float stage[2][128];
    const int t = threadIdx.x;
    auto issue = [&](int tile) {
        if (t < 32) cp_async_16(&stage[tile % 2][t * 4], x + tile * 128 + t * 4);
    };
    float sum = 0;
    issue(0);
    cp_async_commit();
    for (int tile = 0; tile < tiles; tile++) {
        if (tile + 1 < tiles) issue(tile + 1);
        if (kFault != Pipe::NoCommit || tile + 1 < tiles) cp_async_commit();
        if (kFault != Pipe::NoWait) cp_async_wait_group<1>();
        if (kFault != Pipe::NoBarrierAfterWait) __syncthreads();
        sum += stage[tile % 2][127 - t];
        if (kFault != Pipe::NoBarrierBeforeRefill) __syncthreads();
    }
    cp_async_wait_group<0>();
    out[t] = sum;
}
static void run_pipe(void (*kernel)(float*, const float*, int)) {
    float *x = device_floats(1024, Content::Numbers), *out = device_floats(128, Content::Nothing);
    launch(kernel, 1, 128, 0, CudaStream{}, out, x, 8);
    expect_values(host_copy(out, 128), [](int i) { return 8.0f * float(127 - i) + 128.0f * 28; });
}
CASE(missing_copy_wait) {
    run_pipe(wrong ? pipe_kernel<Pipe::NoWait> : pipe_kernel<Pipe::Right>);
}
CASE(missing_last_commit) {  // so that the last wait lets the last tile through
    run_pipe(wrong ? pipe_kernel<Pipe::NoCommit> : pipe_kernel<Pipe::Right>);
}
CASE(missing_barrier_after_wait) {
    run_pipe(wrong ? pipe_kernel<Pipe::NoBarrierAfterWait> : pipe_kernel<Pipe::Right>);
}
CASE(missing_barrier_before_refill) {
    run_pipe(wrong ? pipe_kernel<Pipe::NoBarrierBeforeRefill> : pipe_kernel<Pipe::Right>);
}

// ---- atomics

template <bool kWrong>
__global__ void count_kernel(int* counter) {
    if (kWrong)
        *counter = *counter + 1;
    else
        atomicAdd(counter, 1);
}
CASE(missing_atomic) {
    int* counter = nullptr;
    CUDA_CHECK(cudaMalloc(&counter, sizeof(int)));
    CUDA_CHECK(cudaMemset(counter, 0, sizeof(int)));
    LAUNCH_EITHER(count_kernel, 4, 64, 0, counter);
}

template <bool kWrong>
__global__ void same_place_kernel(float* x) {
    const int block = kWrong ? 0 : int(blockIdx.x);
    x[block * 64 + threadIdx.x] = float(blockIdx.x);
}
CASE(blocks_write_one_place) {
    float* x = device_floats(256, Content::Nothing);
    LAUNCH_EITHER(same_place_kernel, 4, 64, 0, x);
}

// A sum whose bits depend on the order of the threads, against one of fixed order.
template <bool kWrong>
__global__ void sum_kernel(float* sum, const float* x) {
    const int t = threadIdx.x;
    if (kWrong) {
        atomicAdd(sum, x[t]);
    } else {
        const float v = warp_sum(x[t]);
        if (t == 0) *sum = v;
    }
}
CASE(float_atomics) {
    float *x = device_floats(32, Content::Numbers), *sum = device_floats(1, Content::Numbers);
    LAUNCH_EITHER(sum_kernel, 1, 32, 0, sum, x);
    expect_values(host_copy(sum, 1), [](int) { return 31.0f * 16; });
}
