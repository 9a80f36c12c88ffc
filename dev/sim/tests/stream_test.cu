// Streams, events, graphs, memory and the device's limits in the simulator.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <thread>
#include <vector>

#include "llmc/core/launch.cuh"

namespace {

__global__ void add_kernel(float* y, const float* x, float c, int n) {
    const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) y[i] = x[i] + c;
}

struct Streams : testing::Test {
    static constexpr int n = 300;
    float *x, *y;
    cudaStream_t a, b;
    void SetUp() override {
        CUDA_CHECK(cudaMalloc(&x, n * sizeof(float)));
        CUDA_CHECK(cudaMalloc(&y, n * sizeof(float)));
        CUDA_CHECK(cudaMemset(x, 0, n * sizeof(float)));
        CUDA_CHECK(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
        CUDA_CHECK(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
        CUDA_CHECK(cudaDeviceSynchronize());
    }
    void TearDown() override {
        CUDA_CHECK(cudaFree(x));
        CUDA_CHECK(cudaFree(y));
        CUDA_CHECK(cudaStreamDestroy(a));
        CUDA_CHECK(cudaStreamDestroy(b));
    }
    void add(float* to, const float* from, float c, cudaStream_t s) {
        launch(add_kernel, 2, 256, 0, CudaStream{s}, to, from, c, n);
    }
    void expect(float* p, float value) {
        std::vector<float> host(n);
        CUDA_CHECK(cudaMemcpy(host.data(), p, n * sizeof(float), cudaMemcpyDeviceToHost));
        for (float v : host) ASSERT_EQ(v, value);
    }
};

TEST_F(Streams, an_event_orders_two_streams) {
    cudaEvent_t done;
    CUDA_CHECK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
    add(y, x, 1, a);
    CUDA_CHECK(cudaEventRecord(done, a));
    CUDA_CHECK(cudaStreamWaitEvent(b, done));
    add(x, y, 2, b);
    CUDA_CHECK(cudaStreamSynchronize(b));
    expect(x, 3);
    CUDA_CHECK(cudaEventDestroy(done));
}

// The wait is for the record that was there when it was issued, not for a later one.
TEST_F(Streams, a_wait_is_for_the_record_before_it) {
    cudaEvent_t done;
    CUDA_CHECK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
    CUDA_CHECK(cudaStreamWaitEvent(b, done));  // never recorded: no wait
    add(y, x, 1, a);
    CUDA_CHECK(cudaEventRecord(done, a));
    CUDA_CHECK(cudaStreamWaitEvent(b, done));
    add(x, y, 2, b);
    CUDA_CHECK(cudaEventRecord(done, b));
    CUDA_CHECK(cudaStreamWaitEvent(a, done));
    add(y, x, 4, a);
    CUDA_CHECK(cudaStreamSynchronize(a));
    expect(y, 7);
    CUDA_CHECK(cudaEventDestroy(done));
}

TEST_F(Streams, nothing_runs_before_the_host_waits) {
    if (getenv("CUSIM_STREAM")) GTEST_SKIP() << "needs the lazy order";
    add(x, x, 1, a);
    EXPECT_EQ(cudaStreamQuery(a), cudaErrorNotReady);
    EXPECT_EQ(cudaStreamQuery(a), cudaSuccess);
    expect(x, 1);
}

TEST_F(Streams, the_default_stream_waits_for_blocking_streams) {
    cudaStream_t blocking;
    CUDA_CHECK(cudaStreamCreate(&blocking));
    add(y, x, 1, blocking);
    add(x, y, 2, nullptr);
    add(y, x, 4, blocking);
    CUDA_CHECK(cudaStreamSynchronize(blocking));
    expect(y, 7);
    CUDA_CHECK(cudaStreamDestroy(blocking));
}

TEST_F(Streams, a_captured_graph_replays) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CUDA_CHECK(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal));
    add(y, x, 1, a);
    add(x, y, 2, a);
    CUDA_CHECK(cudaStreamEndCapture(a, &graph));
    CUDA_CHECK(cudaStreamSynchronize(a));
    expect(x, 0);  // capturing runs nothing
    CUDA_CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; i++) CUDA_CHECK(cudaGraphLaunch(exec, a));
    CUDA_CHECK(cudaStreamSynchronize(a));
    expect(x, 9);
    CUDA_CHECK(cudaGraphExecDestroy(exec));
    CUDA_CHECK(cudaGraphDestroy(graph));
}

// A second stream joins the capture through events.
TEST_F(Streams, a_capture_forks_and_joins) {
    cudaEvent_t fork, join;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CUDA_CHECK(cudaEventCreate(&fork));
    CUDA_CHECK(cudaEventCreate(&join));
    CUDA_CHECK(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal));
    CUDA_CHECK(cudaEventRecord(fork, a));
    CUDA_CHECK(cudaStreamWaitEvent(b, fork));
    add(y, x, 1, b);
    CUDA_CHECK(cudaEventRecord(join, b));
    CUDA_CHECK(cudaStreamWaitEvent(a, join));
    add(x, y, 2, a);
    CUDA_CHECK(cudaStreamEndCapture(a, &graph));
    CUDA_CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CUDA_CHECK(cudaGraphLaunch(exec, a));
    CUDA_CHECK(cudaStreamSynchronize(a));
    expect(x, 3);
    CUDA_CHECK(cudaGraphExecDestroy(exec));
    CUDA_CHECK(cudaGraphDestroy(graph));
    CUDA_CHECK(cudaEventDestroy(fork));
    CUDA_CHECK(cudaEventDestroy(join));
}

// A pageable source may be reused at once; the arguments of a launch are copied.
TEST_F(Streams, what_is_passed_is_copied_at_the_call) {
    std::vector<float> host(n, 5);
    CUDA_CHECK(cudaMemcpyAsync(x, host.data(), n * sizeof(float), cudaMemcpyHostToDevice, a));
    host.assign(n, -1);
    float c = 1;
    launch(add_kernel, 2, 256, 0, CudaStream{a}, y, x, c, n);
    c = 100;
    CUDA_CHECK(cudaStreamSynchronize(a));
    expect(y, 6);
}

TEST_F(Streams, host_threads_may_use_the_api_at_once) {
    constexpr int kThreads = 4, kRounds = 20;
    std::vector<std::thread> threads;
    std::vector<int> good(kThreads, 0);
    for (int t = 0; t < kThreads; t++)
        threads.emplace_back([t, &good] {
            float* p = nullptr;
            cudaStream_t s;
            CUDA_CHECK(cudaMalloc(&p, n * sizeof(float)));
            CUDA_CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
            CUDA_CHECK(cudaMemsetAsync(p, 0, n * sizeof(float), s));
            for (int i = 0; i < kRounds; i++)
                launch(add_kernel, 2, 256, 0, CudaStream{s}, p, p, float(t), n);
            std::vector<float> host(n);
            CUDA_CHECK(
                cudaMemcpyAsync(host.data(), p, n * sizeof(float), cudaMemcpyDeviceToHost, s));
            CUDA_CHECK(cudaStreamSynchronize(s));
            for (float v : host) good[t] += v == float(t * kRounds);
            CUDA_CHECK(cudaFree(p));
            CUDA_CHECK(cudaStreamDestroy(s));
        });
    for (std::thread& t : threads) t.join();
    for (int t = 0; t < kThreads; t++) EXPECT_EQ(good[t], n);
}

// ---- memory

TEST(sim_memory, fresh_memory_is_nan) {
    float* p = nullptr;
    CUDA_CHECK(cudaMalloc(&p, 100 * sizeof(float)));
    std::vector<float> host(100);
    CUDA_CHECK(cudaMemcpy(host.data(), p, 100 * sizeof(float), cudaMemcpyDeviceToHost));
    for (float v : host) EXPECT_TRUE(std::isnan(v));
    CUDA_CHECK(cudaFree(p));
}
TEST(sim_memory, allocations_are_aligned_to_256_bytes) {
    for (size_t bytes : {1, 255, 256, 4096, 100000}) {
        char* p = nullptr;
        CUDA_CHECK(cudaMalloc(&p, bytes));
        EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % 256, 0u);
        CUDA_CHECK(cudaFree(p));
    }
}
TEST(sim_memory, the_device_is_finite) {
    size_t free_before = 0, free_after = 0, total = 0;
    CUDA_CHECK(cudaMemGetInfo(&free_before, &total));
    void* p = nullptr;
    EXPECT_EQ(cudaMalloc(&p, total + 1), cudaErrorMemoryAllocation);
    CUDA_CHECK(cudaMalloc(&p, 1 << 20));
    CUDA_CHECK(cudaMemGetInfo(&free_after, &total));
    EXPECT_EQ(free_before - free_after, size_t(1) << 20);
    CUDA_CHECK(cudaFree(p));
}

// ---- the backend on top

TEST(backend_cuda, memory_is_zeroed_and_copied) {
    const CudaStream s{};
    auto* p = static_cast<int*>(memory_alloc(100 * sizeof(int), "test", s));
    std::vector<int> host(100, 7), ones(100, 1);
    memory_to_host(host.data(), p, 100 * sizeof(int), s);
    EXPECT_EQ(host, std::vector<int>(100, 0));
    memory_from_host(p, ones.data(), 100 * sizeof(int), s);
    memory_to_host(host.data(), p, 100 * sizeof(int), s);
    EXPECT_EQ(host, ones);
    memory_free(p, 100 * sizeof(int), s);
    EXPECT_EQ(memory_alloc(0, "nothing", s), nullptr);
}
TEST(backend_cuda, out_of_memory_says_what_for_and_what_helps) {
    try {
        memory_alloc(size_t(1) << 60, "the optimizer's moments", CudaStream{});
        FAIL() << "that much memory was there";
    } catch (const Error& e) {
        const std::string text = e.what();
        EXPECT_EQ(e.code, Exit::Resource);
        EXPECT_NE(text.find("the optimizer's moments"), std::string::npos) << text;
        EXPECT_NE(text.find("1152921504606846976 bytes wanted"), std::string::npos) << text;
        EXPECT_NE(text.find("free"), std::string::npos) << text;
        EXPECT_NE(text.find("--micro-batch"), std::string::npos) << text;
    }
}
TEST(backend_cuda, a_failed_call_names_kernel_and_step) {
    launch(add_kernel, 1, 32, 0, CudaStream{}, static_cast<float*>(nullptr),
           static_cast<const float*>(nullptr), 0.0f, 0);
    stream_sync(CudaStream{});
    cuda_note_step(1234);
    try {
        CUDA_CHECK(cudaSetDevice(999));
        FAIL() << "device 999 exists";
    } catch (const Error& e) {
        const std::string text = e.what();
        for (const char* part :
             {"cudaSetDevice(999)", "cudaErrorInvalidDevice", "add_kernel", "1234"})
            EXPECT_NE(text.find(part), std::string::npos) << part << " not in: " << text;
    }
    cuda_note_step(-1);
    EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
}

}  // namespace
