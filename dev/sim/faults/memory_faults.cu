// Planted faults of memory: bounds, alignment, contents, lifetime, sides; and bad launches.
#include "fault.h"

// ---- bounds

template <bool kWrong>
__global__ void numbers_kernel(float* x, int n) {
    const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
    if (i > n || (!kWrong && i == n)) return;  // `i > n` alone lets i = n in
    x[i] = 2 * float(i);
}
CASE(global_past_the_end) {
    float* x = device_floats(1000, Content::Nothing);
    LAUNCH_EITHER(numbers_kernel, 4, 256, 0, x, 1000);
    expect_values(host_copy(x, 1000), [](int i) { return 2.0f * float(i); });
    CUDA_CHECK(cudaFree(x));
}
// 1024 floats fill their page, so the first byte behind them is on the guard page.
CASE(global_past_the_page) {
    float* x = device_floats(1024, Content::Nothing);
    LAUNCH_EITHER(numbers_kernel, 5, 256, 0, x, 1024);
    expect_values(host_copy(x, 1024), [](int i) { return 2.0f * float(i); });
}

template <bool kWrong>
__global__ void shared_bounds_kernel(float* x) {
    __shared__ float s[64];
    const int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    x[t] = s[(t + 1) % (kWrong ? 128 : 64)];
}
CASE(shared_past_the_end) {
    float* x = device_floats(64, Content::Numbers);
    LAUNCH_EITHER(shared_bounds_kernel, 1, 64, 0, x);
    expect_values(host_copy(x, 64), [](int i) { return float((i + 1) % 64); });
}
template <bool kWrong>
__global__ void dynamic_bounds_kernel(float* x) {
    float* s = dyn_smem<float>();
    const int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    x[t] = s[(t + 1) % (kWrong ? 128 : 64)];
}
CASE(dynamic_shared_past_the_end) {
    float* x = device_floats(64, Content::Numbers);
    LAUNCH_EITHER(dynamic_bounds_kernel, 1, 64, 64 * sizeof(float), x);
    expect_values(host_copy(x, 64), [](int i) { return float((i + 1) % 64); });
}
template <bool kWrong>
__global__ void local_bounds_kernel(float* x, int k) {
    float a[8];
    for (int i = 0; i < 8; i++) a[i] = x[i];
    x[threadIdx.x + 8] = a[(threadIdx.x + k) % (kWrong ? 9 : 8)];
}
CASE(local_array_past_the_end) {
    float* x = device_floats(40, Content::Numbers);
    LAUNCH_EITHER(local_bounds_kernel, 1, 32, 0, x, 3);
}

// ---- alignment

template <bool kWrong>
__global__ void misaligned_packed_kernel(float* y, const float* x) {
    store128(y + threadIdx.x * 4, load128(x + threadIdx.x * 4 + (kWrong ? 1 : 0)));
}
CASE(misaligned_load128) {
    float *x = device_floats(132, Content::Numbers), *y = device_floats(128, Content::Nothing);
    LAUNCH_EITHER(misaligned_packed_kernel, 1, 32, 0, y, x);
    expect_values(host_copy(y, 128), [](int i) { return float(i); });
}
template <bool kWrong>
__global__ void misaligned_cast_kernel(float* y, const float* x) {
    const float* p = x + threadIdx.x * 4 + (kWrong ? 1 : 0);
    const float4 v = *reinterpret_cast<const float4*>(p);
    y[threadIdx.x] = v.x;
}
CASE(misaligned_cast) {
    float *x = device_floats(132, Content::Numbers), *y = device_floats(32, Content::Nothing);
    LAUNCH_EITHER(misaligned_cast_kernel, 1, 32, 0, y, x);
    expect_values(host_copy(y, 32), [](int i) { return 4.0f * float(i); });
}

// ---- contents

template <bool kWrong>
__global__ void threshold_kernel(float* y, const float* x) {
    if (x[threadIdx.x] >= 0.5f)
        y[threadIdx.x] = 1;
    else
        y[threadIdx.x] = 0;
}
CASE(uninitialised_global) {
    float* x = device_floats(64, wrong ? Content::Nothing : Content::Numbers);
    float* y = device_floats(64, Content::Nothing);
    LAUNCH_EITHER(threshold_kernel, 1, 64, 0, y, x);
    expect_values(host_copy(y, 64), [](int i) { return i > 0 ? 1.0f : 0.0f; });
}
template <bool kWrong>
__global__ void uninitialised_shared_kernel(float* y) {
    __shared__ float s[64];
    const int t = threadIdx.x;
    if (!kWrong || t > 0) s[t] = 1;
    __syncthreads();
    if (s[t ^ 1] >= 0.5f)
        y[t] = 1;
    else
        y[t] = 0;
}
CASE(uninitialised_shared) {
    float* y = device_floats(64, Content::Nothing);
    LAUNCH_EITHER(uninitialised_shared_kernel, 1, 64, 0, y);
    expect_values(host_copy(y, 64), [](int) { return 1.0f; });
}

// ---- lifetime

template <bool kWrong>
__global__ void increment_kernel(float* x) {
    x[threadIdx.x] += 1;
}
CASE(use_after_free) {
    float* x = device_floats(64, Content::Numbers);
    if (wrong) CUDA_CHECK(cudaFree(x));
    LAUNCH_EITHER(increment_kernel, 1, 64, 0, x);
}
// The stale pointer sits in device memory, where a look at the kernel's arguments cannot see it.
template <bool kWrong>
__global__ void indirect_kernel(float** table) {
    table[0][threadIdx.x] += 1;
}
CASE(use_after_free_through_a_table) {
    float *x = device_floats(64, Content::Numbers), **table = nullptr;
    CUDA_CHECK(cudaMalloc(&table, sizeof(float*)));
    CUDA_CHECK(cudaMemcpy(table, &x, sizeof(float*), cudaMemcpyHostToDevice));
    if (wrong) CUDA_CHECK(cudaFree(x));
    LAUNCH_EITHER(indirect_kernel, 1, 64, 0, table);
}
CASE(double_free) {
    float* x = device_floats(64, Content::Numbers);
    CUDA_CHECK(cudaFree(x));
    if (wrong) CUDA_CHECK(cudaFree(x));
}

// ---- the two sides

CASE(host_touches_device_memory) {
    float* x = device_floats(64, Content::Numbers);
    if (wrong)
        x[3] = 1;
    else
        CUDA_CHECK(cudaMemset(x, 0, 64 * sizeof(float)));
}
CASE(host_pointer_as_argument) {
    std::vector<float> h(64, 1.0f);
    float* x = device_floats(64, Content::Numbers);
    LAUNCH_EITHER(increment_kernel, 1, 64, 0, wrong ? h.data() : x);
}
CASE(copy_overruns) {
    std::vector<float> h(65);
    float* x = device_floats(64, Content::Nothing);
    CUDA_CHECK(cudaMemcpy(x, h.data(), (wrong ? 65 : 64) * sizeof(float), cudaMemcpyHostToDevice));
}
CASE(copy_of_the_wrong_kind) {
    std::vector<float> h(64);
    float* x = device_floats(64, Content::Numbers);
    CUDA_CHECK(cudaMemcpy(h.data(), x, 64 * sizeof(float),
                          wrong ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost));
}

// ---- launches

template <int kThreads>
__global__ void __launch_bounds__(kThreads, 2) bounded_kernel(float* x) {
    x[blockIdx.x * blockDim.x + threadIdx.x] += 1;
}
CASE(launch_bounds_exceeded) {
    float* x = device_floats(256, Content::Numbers);
    if (wrong)
        launch(bounded_kernel<128>, 1, 256, 0, CudaStream{}, x);
    else
        launch(bounded_kernel<128>, 2, 128, 0, CudaStream{}, x);
}
CASE(block_too_large) {
    float* x = device_floats(2048, Content::Numbers);
    LAUNCH_EITHER(increment_kernel, 1, wrong ? 2048 : 1024, 0, x);
}
template <bool kWrong>
__global__ void dynamic_smem_kernel(float* x) {
    dyn_smem<float>()[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = dyn_smem<float>()[threadIdx.x ^ 1];
}
// More than the device has. Up to that launch() asks for what it needs.
CASE(too_much_shared_memory) {
    float* x = device_floats(64, Content::Numbers);
    LAUNCH_EITHER(dynamic_smem_kernel, 1, 64, (wrong ? 228 : 227) * 1024, x);
}
template <bool kWrong>
__global__ void static_and_dynamic_kernel(float* x) {
    __shared__ float s[kWrong ? 8192 : 4096];
    s[threadIdx.x] = x[threadIdx.x];
    dyn_smem<float>()[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = s[threadIdx.x ^ 1] + dyn_smem<float>()[threadIdx.x ^ 1];
}
// 32 KiB of each: neither is over the 48 KiB that need no permission, together they are.
CASE(static_and_dynamic_too_much) {
    float* x = device_floats(64, Content::Numbers);
    LAUNCH_EITHER(static_and_dynamic_kernel, 1, 64, 32 * 1024, x);
}
