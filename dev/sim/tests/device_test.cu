// The device language in the simulator: built-in variables, warp primitives, barriers, atomics,
// cooperative groups. Every value is checked against what CUDA's manual defines.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include "llmc/core/launch.cuh"
#include "llmc/core/packed.cuh"

namespace {

constexpr CudaStream kStream{};

// Runs kernel(out, args...) and returns the n values of out.
template <class T, class Kernel, class... Args>
std::vector<T> run(Kernel kernel, dim3 grid, dim3 block, int n, Args... args) {
    T* out = nullptr;
    CUDA_CHECK(cudaMalloc(&out, n * sizeof(T)));
    CUDA_CHECK(cudaMemset(out, 0, n * sizeof(T)));
    launch(kernel, grid, block, 0, kStream, out, args...);
    std::vector<T> host(n);
    CUDA_CHECK(cudaMemcpy(host.data(), out, n * sizeof(T), cudaMemcpyDeviceToHost));
    CUDA_CHECK(cudaFree(out));
    return host;
}

__global__ void index_kernel(int* out) {
    const int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    const int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    const int threads = blockDim.x * blockDim.y * blockDim.z;
    out[block * threads + thread] = block * 1000 + thread;
}
TEST(sim_device, every_thread_of_every_block_runs_once) {
    const std::vector<int> out = run<int>(index_kernel, dim3(2, 3, 2), dim3(5, 4, 3), 12 * 60);
    for (int i = 0; i < int(out.size()); i++) EXPECT_EQ(out[i], i / 60 * 1000 + i % 60);
}

// ---- shuffles: each kind against its definition, at widths 32 and 8

__global__ void shuffle_kernel(int* out, int width) {
    const int lane = threadIdx.x;
    out[lane] = __shfl_sync(0xffffffffu, lane * 10, 3, width);
    out[32 + lane] = __shfl_up_sync(0xffffffffu, lane * 10, 2, width);
    out[64 + lane] = __shfl_down_sync(0xffffffffu, lane * 10, 2, width);
    out[96 + lane] = __shfl_xor_sync(0xffffffffu, lane * 10, 5, width);
}
TEST(sim_device, shuffles_stay_in_their_segment) {
    for (int width : {32, 8}) {
        const std::vector<int> out = run<int>(shuffle_kernel, 1, 32, 128, width);
        for (int lane = 0; lane < 32; lane++) {
            const int first = lane / width * width;
            EXPECT_EQ(out[lane], (first + 3) * 10);
            EXPECT_EQ(out[32 + lane], (lane - 2 >= first ? lane - 2 : lane) * 10);
            EXPECT_EQ(out[64 + lane], (lane + 2 < first + width ? lane + 2 : lane) * 10);
            EXPECT_EQ(out[96 + lane], (lane ^ 5) * 10);
        }
    }
}
__global__ void wide_shuffle_kernel(double* out) {
    out[threadIdx.x] = __shfl_down_sync(0xffffffffu, threadIdx.x + 0.25, 1);
}
TEST(sim_device, shuffles_carry_eight_bytes) {
    const std::vector<double> out = run<double>(wide_shuffle_kernel, 1, 32, 32);
    for (int lane = 0; lane < 31; lane++) EXPECT_EQ(out[lane], lane + 1.25);
}

__global__ void vote_kernel(unsigned* out) {
    const int lane = threadIdx.x;
    if (lane >= 24) return;  // the votes are among the lanes that are left
    const unsigned mask = 0x00ffffffu;
    unsigned* mine = out + lane * 8;
    mine[0] = __ballot_sync(mask, lane % 3 == 0);
    mine[1] = __all_sync(mask, lane < 24);
    mine[2] = __any_sync(mask, lane == 40);
    mine[3] = __match_any_sync(mask, lane % 4);
    mine[4] = __reduce_add_sync(mask, unsigned(lane));
    mine[5] = __reduce_max_sync(mask, lane - 30);
    mine[6] = __reduce_min_sync(mask, unsigned(lane) - 5);
}
TEST(sim_device, votes_and_integer_reductions) {
    const std::vector<unsigned> out = run<unsigned>(vote_kernel, 1, 32, 24 * 8);
    unsigned thirds = 0;
    for (int lane = 0; lane < 24; lane += 3) thirds |= 1u << lane;
    for (int lane = 0; lane < 24; lane++) {
        const unsigned* mine = &out[lane * 8];
        EXPECT_EQ(mine[0], thirds);
        EXPECT_EQ(mine[1], 1u);
        EXPECT_EQ(mine[2], 0u);
        EXPECT_EQ(mine[3], 0x00111111u << lane % 4);
        EXPECT_EQ(mine[4], 23u * 24 / 2);
        EXPECT_EQ(int(mine[5]), -7);
        EXPECT_EQ(mine[6], 0u);  // lane 5; lanes 0..4 wrap around to large values
    }
}

// Two halves of a warp in different collectives at the same time, then all of it together.
__global__ void halves_kernel(int* out) {
    const int lane = threadIdx.x;
    int v = lane;
    if (lane < 16) {
        for (int o = 8; o > 0; o /= 2) v += __shfl_xor_sync(0x0000ffffu, v, o);
    } else {
        v = __reduce_add_sync(0xffff0000u, v);
    }
    out[lane] = v + __shfl_sync(0xffffffffu, v, 31);
}
TEST(sim_device, disjoint_masks_may_be_pending_at_once) {
    const std::vector<int> out = run<int>(halves_kernel, 1, 32, 32);
    const int low = 15 * 16 / 2, high = 31 * 32 / 2 - low;
    for (int lane = 0; lane < 32; lane++) EXPECT_EQ(out[lane], (lane < 16 ? low : high) + high);
}

// ---- barriers

__global__ void barrier_kernel(int* out) {
    const int t = threadIdx.x, p = t % 3 == 0;
    out[t * 3] = __syncthreads_count(p);
    out[t * 3 + 1] = __syncthreads_and(p);
    out[t * 3 + 2] = __syncthreads_or(p);
}
TEST(sim_device, barriers_reduce_predicates) {
    const std::vector<int> out = run<int>(barrier_kernel, 1, 100, 300);
    for (int t = 0; t < 100; t++) {
        EXPECT_EQ(out[t * 3], 34);
        EXPECT_EQ(out[t * 3 + 1], 0);
        EXPECT_EQ(out[t * 3 + 2], 1);
    }
}

// An exclusive prefix sum of 1000 numbers in log2 steps: two barriers each.
__global__ void scan_kernel(int* out) {
    __shared__ int s[1024];
    const int t = threadIdx.x;
    s[t] = t % 7;
    __syncthreads();
    for (int step = 1; step < 1024; step *= 2) {
        const int v = t >= step ? s[t - step] : 0;
        __syncthreads();
        s[t] += v;
        __syncthreads();
    }
    out[t] = s[t];
}
TEST(sim_device, a_block_of_1024_threads_scans) {
    const std::vector<int> out = run<int>(scan_kernel, 1, 1024, 1024);
    int sum = 0;
    for (int t = 0; t < 1024; t++) EXPECT_EQ(out[t], sum += t % 7);
}

// ---- shared memory is garbage in every block: nobody sees what an earlier block left

__global__ void leftover_kernel(int* out) {
    __shared__ int s;
    __shared__ int seen;
    if (threadIdx.x == 0) {
        seen = blockIdx.x > 0 && *static_cast<volatile int*>(&s) == 12345;
        *static_cast<volatile int*>(&s) = 12345;
    }
    __syncthreads();
    if (threadIdx.x == 0) out[blockIdx.x] = seen;
}
TEST(sim_device, shared_memory_does_not_survive_its_block) {
#ifdef CUSIM_TRACE
    GTEST_SKIP() << "the kernel reads uninitialised memory on purpose, which trace mode reports";
#endif
    for (int seen : run<int>(leftover_kernel, 4, 32, 4)) EXPECT_EQ(seen, 0);
}

// ---- atomics

__global__ void atomics_kernel(unsigned* out) {
    const unsigned t = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(out, t);
    atomicMax(out + 1, t);
    atomicOr(out + 2, 1u << t % 32);
    atomicInc(out + 3, 9);
    atomicCAS(out + 4, 0u, t + 1);
    atomicXor(out + 5, t);
}
TEST(sim_device, atomics) {
    const std::vector<unsigned> out = run<unsigned>(atomics_kernel, 4, 64, 6);
    unsigned bits = 0;
    for (unsigned t = 0; t < 256; t++) bits ^= t;
    EXPECT_EQ(out[0], 255u * 256 / 2);
    EXPECT_EQ(out[1], 255u);
    EXPECT_EQ(out[2], 0xffffffffu);
    EXPECT_EQ(out[3], 256u % 10);
    EXPECT_GE(out[4], 1u);  // whoever came first
    EXPECT_LE(out[4], 256u);
    EXPECT_EQ(out[5], bits);
}

// ---- cooperative groups

__global__ void groups_kernel(int* out) {
    namespace cg = cooperative_groups;
    const auto block = cg::this_thread_block();
    const auto tile = cg::tiled_partition<8>(block);
    const int t = int(block.thread_rank());
    out[t * 4] = int(tile.thread_rank() + 100 * tile.meta_group_rank());
    out[t * 4 + 1] = cg::reduce(tile, t, cg::plus<int>());
    out[t * 4 + 2] = cg::reduce(tile, t, cg::greater<int>());
    out[t * 4 + 3] = int(tile.ballot(t % 2));
    block.sync();
}
TEST(sim_device, tiles_of_a_block) {
    const std::vector<int> out = run<int>(groups_kernel, 1, dim3(16, 4), 64 * 4);
    for (int t = 0; t < 64; t++) {
        const int first = t / 8 * 8;
        EXPECT_EQ(out[t * 4], t % 8 + 100 * (t / 8));
        EXPECT_EQ(out[t * 4 + 1], 8 * first + 28);
        EXPECT_EQ(out[t * 4 + 2], first + 7);
        EXPECT_EQ(out[t * 4 + 3], 0xaa);
    }
}

// ---- bf16

__global__ void bf16_kernel(float* out) {
    out[0] = __bfloat162float(__float2bfloat16_rn(1.0f + 1.0f / 256));  // a tie: to even
    out[1] = __bfloat162float(__float2bfloat16_rn(1.0f + 3.0f / 256));
    out[2] = __bfloat162float(__float2bfloat16_rz(1.0f + 3.0f / 256));
    out[3] = __bfloat162float(__hadd(__float2bfloat16(256.0f), __float2bfloat16(1.0f)));
    out[4] = __bfloat162float(__float2bfloat16_rn(3.4e38f));  // over the largest bf16
    out[5] = __bfloat162float(__float2bfloat16_rn(NAN));
}
TEST(sim_device, bf16_rounds_to_nearest_even) {
    const std::vector<float> out = run<float>(bf16_kernel, 1, 1, 6);
    EXPECT_EQ(out[0], 1.0f);
    EXPECT_EQ(out[1], 1.0f + 4.0f / 256);
    EXPECT_EQ(out[2], 1.0f + 2.0f / 256);
    EXPECT_EQ(out[3], 256.0f);
    EXPECT_EQ(out[4], INFINITY);
    EXPECT_TRUE(std::isnan(out[5]));
}

}  // namespace
