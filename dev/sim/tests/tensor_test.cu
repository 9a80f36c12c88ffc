// mma, ldmatrix and cp.async in the simulator, against their definitions in the PTX manual.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "llmc/core/launch.cuh"
#include "llmc/core/packed.cuh"
#include "llmc/core/tensorop.cuh"

namespace {

constexpr CudaStream kStream{};

template <class T>
T* upload(const std::vector<T>& host) {
    T* p = nullptr;
    CUDA_CHECK(cudaMalloc(&p, host.size() * sizeof(T)));
    CUDA_CHECK(cudaMemcpy(p, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
    return p;
}
template <class T>
std::vector<T> download(T* p, size_t n) {
    std::vector<T> host(n);
    CUDA_CHECK(cudaMemcpy(host.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost));
    CUDA_CHECK(cudaFree(p));
    return host;
}

// C (16x8) += A (16x16) B (16x8), with the fragments filled by hand from row-major matrices.
__global__ void mma_kernel(float* C, const bf16* A, const bf16* B) {
    const int lane = threadIdx.x, g = lane / 4, t = 2 * (lane % 4);
    auto pair = [](const bf16* p, int step) {
        return uint32_t(p[0].bits) | uint32_t(p[step].bits) << 16;
    };
    const uint32_t a[4] = {pair(A + g * 16 + t, 1), pair(A + (g + 8) * 16 + t, 1),
                           pair(A + g * 16 + t + 8, 1), pair(A + (g + 8) * 16 + t + 8, 1)};
    const uint32_t b[2] = {pair(B + t * 8 + g, 8), pair(B + (t + 8) * 8 + g, 8)};
    float d[4];
    for (int i = 0; i < 4; i++) d[i] = C[(g + i / 2 * 8) * 8 + t + i % 2];
    mma_m16n8k16_bf16(d, a, b);
    for (int i = 0; i < 4; i++) C[(g + i / 2 * 8) * 8 + t + i % 2] = d[i];
}
TEST(sim_tensor, mma_is_a_matrix_product) {
    std::vector<bf16> A(256), B(128);
    std::vector<float> C(128), expected(128);
    for (int i = 0; i < 256; i++) A[i] = to_bf16(float(i * 7 % 23 - 11));  // exact in any order
    for (int i = 0; i < 128; i++) B[i] = to_bf16(float(i * 5 % 19 - 9)), C[i] = float(i);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++) {
            expected[i * 8 + j] = C[i * 8 + j];
            for (int k = 0; k < 16; k++)
                expected[i * 8 + j] += to_float(A[i * 16 + k]) * to_float(B[k * 8 + j]);
        }
    bf16 *dA = upload(A), *dB = upload(B);
    float* dC = upload(C);
    launch(mma_kernel, 1, 32, 0, kStream, dC, dA, dB);
    EXPECT_EQ(download(dC, 128), expected);
    CUDA_CHECK(cudaFree(dA));
    CUDA_CHECK(cudaFree(dB));
}

// Element (r, c) of matrix m holds m * 64 + r * 8 + c.
template <bool kTranspose, int kMatrices>
__global__ void ldmatrix_kernel(unsigned* out) {
    __shared__ __align__(16) unsigned short s[kMatrices * 64];
    const int lane = threadIdx.x;
    for (int i = lane; i < kMatrices * 64; i += 32) s[i] = static_cast<unsigned short>(i);
    __syncwarp();
    uint32_t r[kMatrices];
    const void* row = s + lane % (kMatrices * 8) * 8;
    if constexpr (kMatrices == 4 && kTranspose)
        ldmatrix_x4_trans(r, row);
    else if constexpr (kMatrices == 4)
        ldmatrix_x4(r, row);
    else if constexpr (kTranspose)
        ldmatrix_x2_trans(r, row);
    else
        ldmatrix_x2(r, row);
    for (int m = 0; m < kMatrices; m++) out[lane * kMatrices + m] = r[m];
}
template <bool kTranspose, int kMatrices>
void check_ldmatrix() {
    unsigned* out = upload(std::vector<unsigned>(32 * kMatrices));
    launch(ldmatrix_kernel<kTranspose, kMatrices>, 1, 32, 0, kStream, out);
    const std::vector<unsigned> got = download(out, 32 * kMatrices);
    for (int lane = 0; lane < 32; lane++)
        for (int m = 0; m < kMatrices; m++) {
            const int r = lane / 4, c = lane % 4 * 2;
            auto element = [&](int row, int col) { return unsigned(m * 64 + row * 8 + col); };
            const unsigned low = kTranspose ? element(c, r) : element(r, c);
            const unsigned high = kTranspose ? element(c + 1, r) : element(r, c + 1);
            EXPECT_EQ(got[lane * kMatrices + m], low | high << 16) << lane << ' ' << m;
        }
}
TEST(sim_tensor, ldmatrix_x4) {
    check_ldmatrix<false, 4>();
}
TEST(sim_tensor, ldmatrix_x4_trans) {
    check_ldmatrix<true, 4>();
}
TEST(sim_tensor, ldmatrix_x2) {
    check_ldmatrix<false, 2>();
}
TEST(sim_tensor, ldmatrix_x2_trans) {
    check_ldmatrix<true, 2>();
}

// The target is NaN from the issue to the wait; groups land in order; an invalid copy gives zeros.
__global__ void copy_kernel(float* out, const float* x) {
    __shared__ __align__(16) float s[3][128];
    const int t = threadIdx.x;
    for (int k = 0; k < 3; k++) {
        cp_async_16(&s[k][t * 4], x + k * 128 + t * 4, k < 2 || t % 2 == 0);
        cp_async_commit();
    }
#ifndef CUSIM_TRACE  // trace mode reports a look at a copy in flight
    out[t] = s[0][t * 4];
#endif
    cp_async_wait_group<2>();
    out[32 + t] = s[0][t * 4 + 3];
#ifndef CUSIM_TRACE
    out[64 + t] = s[1][t * 4];
#endif
    cp_async_wait_group<0>();
    out[96 + t] = s[2][t * 4 + 1];
}
TEST(sim_tensor, copies_land_at_their_wait) {
    std::vector<float> x(384);
    for (int i = 0; i < 384; i++) x[i] = float(i);
    float *dx = upload(x), *out = upload(std::vector<float>(128, NAN));
    launch(copy_kernel, 1, 32, 0, kStream, out, dx);
    const std::vector<float> got = download(out, 128);
    for (int t = 0; t < 32; t++) {
        EXPECT_TRUE(std::isnan(got[t]));
        EXPECT_EQ(got[32 + t], float(t * 4 + 3));
        EXPECT_TRUE(std::isnan(got[64 + t]));
        EXPECT_EQ(got[96 + t], t % 2 == 0 ? float(256 + t * 4 + 1) : 0.0f);
    }
    CUDA_CHECK(cudaFree(dx));
}

}  // namespace
