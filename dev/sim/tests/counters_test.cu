// Trace mode's counters against counts made by hand.
#include <cusim/counters.h>
#include <gtest/gtest.h>

#include "llmc/core/launch.cuh"
#include "llmc/core/packed.cuh"

namespace {

constexpr CudaStream kStream{};

struct Counters : testing::Test {
    float* x = nullptr;
    void SetUp() override {
        if (!cusim::counters_available()) GTEST_SKIP() << "counts exist in SIM_MODE=trace only";
        CUDA_CHECK(cudaMalloc(&x, 65536 * sizeof(float)));
        CUDA_CHECK(cudaMemset(x, 0, 65536 * sizeof(float)));
        CUDA_CHECK(cudaDeviceSynchronize());
        cusim::counters_reset();
    }
    void TearDown() override {
        if (x) CUDA_CHECK(cudaFree(x));
    }
    cusim::KernelCounters finish() {
        CUDA_CHECK(cudaDeviceSynchronize());
        return cusim::counters_total();
    }
};

// y = x at 4 bytes a thread, elements `stride` apart.
__global__ void strided_kernel(float* y, const float* x, int stride) {
    const int i = int(blockIdx.x * blockDim.x + threadIdx.x) * stride;
    y[i] = x[i];
}
TEST_F(Counters, neighbouring_words_fill_their_sectors) {
    launch(strided_kernel, 4, 256, 0, kStream, x + 32768, x, 1);
    const cusim::KernelCounters c = finish();
    EXPECT_EQ(c.launches, 1u);
    EXPECT_EQ(c.blocks, 4u);
    EXPECT_EQ(c.read_requested, 4096u);
    EXPECT_EQ(c.written_requested, 4096u);
    EXPECT_EQ(c.read_moved, 4096u);
    EXPECT_EQ(c.written_moved, 4096u);
    EXPECT_EQ(c.sectors, 2u * 4096 / 32);
    EXPECT_EQ(c.sector_efficiency(), 1.0);
}
TEST_F(Counters, strided_words_waste_sectors) {
    launch(strided_kernel, 4, 256, 0, kStream, x + 32768, x, 8);
    const cusim::KernelCounters c = finish();
    EXPECT_EQ(c.sectors, 2u * 1024);  // one a lane
    EXPECT_EQ(c.read_moved, 1024u * 32);
    EXPECT_EQ(c.sector_efficiency(), 4.0 / 32);
}
__global__ void packed_kernel(float* y, const float* x) {
    const int i = int(blockIdx.x * blockDim.x + threadIdx.x) * 4;
    store128_streaming(y + i, load128_streaming(x + i));
}
TEST_F(Counters, wide_accesses_count_once) {
    launch(packed_kernel, 2, 128, 0, kStream, x + 32768, x);
    const cusim::KernelCounters c = finish();
    EXPECT_EQ(c.read_requested, 4096u);
    EXPECT_EQ(c.written_requested, 4096u);
    EXPECT_EQ(c.sectors, 2u * 4096 / 32);
    EXPECT_EQ(c.sector_efficiency(), 1.0);
}
// Every block reads the same 1 KiB: requested each time, moved once.
__global__ void shared_input_kernel(float* y, const float* x) {
    y[blockIdx.x * blockDim.x + threadIdx.x] = x[threadIdx.x];
}
TEST_F(Counters, repeated_reads_are_moved_once) {
    launch(shared_input_kernel, 8, 256, 0, kStream, x + 32768, x);
    const cusim::KernelCounters c = finish();
    EXPECT_EQ(c.read_requested, 8192u);
    EXPECT_EQ(c.read_moved, 1024u);
    EXPECT_EQ(c.written_moved, 8192u);
}

// A 32x32 tile, written by rows and read by columns: row pitch 32 puts a column into one bank.
template <int kPitch>
__global__ void transpose_kernel(float* x) {
    __shared__ float s[32 * kPitch];
    const int lane = threadIdx.x;
    for (int r = 0; r < 32; r++) s[r * kPitch + lane] = x[r * 32 + lane];
    __syncwarp();
    for (int r = 0; r < 32; r++) x[r * 32 + lane] = s[lane * kPitch + r];
}
TEST_F(Counters, columns_of_a_tile_conflict) {
    launch(transpose_kernel<32>, 1, 32, 0, kStream, x);
    const cusim::KernelCounters c = finish();
    EXPECT_EQ(c.shared_accesses, 64u);
    EXPECT_EQ(c.ideal_wavefronts, 64u);
    EXPECT_EQ(c.wavefronts, 32u + 32 * 32);
    EXPECT_EQ(c.conflicts_per_access(), 15.5);
}
TEST_F(Counters, a_padded_tile_does_not) {
    launch(transpose_kernel<33>, 1, 32, 0, kStream, x);
    const cusim::KernelCounters c = finish();
    EXPECT_EQ(c.wavefronts, 64u);
    EXPECT_EQ(c.conflicts_per_access(), 0.0);
}
TEST_F(Counters, the_lines_are_named) {
    launch(transpose_kernel<32>, 1, 32, 0, kStream, x);
    finish();
    const std::string lines = cusim::counters_by_line("transpose_kernel");
    EXPECT_NE(lines.find("counters_test.cu:"), std::string::npos) << lines;
    EXPECT_NE(lines.find("wavefronts/request 32.00 (ideal  1.00)"), std::string::npos) << lines;
}

}  // namespace
