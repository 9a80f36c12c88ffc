// Planted faults between streams, and between a stream and the host.
#include "fault.h"

static __global__ void double_into_kernel(float* y, const float* x) {
    const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
    y[i] = 2 * x[i];
}
static cudaStream_t new_stream() {
    cudaStream_t s;
    CUDA_CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    return s;
}

// One stream computes y = 2x, the other z = 2y.
static void two_streams(bool with_event, bool sync_device) {
    const int n = 1024;
    float *x = device_floats(n, Content::Numbers), *y = device_floats(n, Content::Nothing),
          *z = device_floats(n, Content::Nothing);
    cudaStream_t first = new_stream(), second = new_stream();
    launch(double_into_kernel, 4, 256, 0, CudaStream{first}, y, x);
    if (with_event) {
        cudaEvent_t done;
        CUDA_CHECK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
        CUDA_CHECK(cudaEventRecord(done, first));
        CUDA_CHECK(cudaStreamWaitEvent(second, done));
    }
    launch(double_into_kernel, 4, 256, 0, CudaStream{second}, z, y);
    CUDA_CHECK(sync_device ? cudaDeviceSynchronize() : cudaStreamSynchronize(second));
    expect_values(host_copy(z, n), [](int i) { return 4.0f * float(i); });
}
CASE(missing_event) {
    two_streams(!wrong, false);
}
CASE(missing_event_then_device_sync) {
    two_streams(!wrong, true);
}

// The second stream overwrites what the first still reads. In the order of issue, the values are
// right even without the event.
CASE(missing_event_before_overwrite) {
    const int n = 1024;
    float *x = device_floats(n, Content::Numbers), *y = device_floats(n, Content::Nothing);
    cudaStream_t reader = new_stream(), writer = new_stream();
    launch(double_into_kernel, 4, 256, 0, CudaStream{reader}, y, x);
    if (!wrong) {
        cudaEvent_t done;
        CUDA_CHECK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
        CUDA_CHECK(cudaEventRecord(done, reader));
        CUDA_CHECK(cudaStreamWaitEvent(writer, done));
    } else {
        CUDA_CHECK(cudaStreamQuery(reader) == cudaErrorNotReady ? cudaSuccess : cudaErrorUnknown);
    }
    CUDA_CHECK(cudaMemsetAsync(x, 0, n * sizeof(float), writer));
    CUDA_CHECK(cudaDeviceSynchronize());
    expect_values(host_copy(y, n), [](int i) { return 2.0f * float(i); });
}

// A copy to pinned memory is asynchronous; the values are there after the synchronisation.
CASE(host_reads_before_synchronise) {
    const int n = 1024;
    float *x = device_floats(n, Content::Numbers), *pinned = nullptr;
    CUDA_CHECK(cudaMallocHost(&pinned, n * sizeof(float)));
    cudaStream_t s = new_stream();
    CUDA_CHECK(cudaMemcpyAsync(pinned, x, n * sizeof(float), cudaMemcpyDeviceToHost, s));
    if (!wrong) CUDA_CHECK(cudaStreamSynchronize(s));
    expect_values(std::vector<float>(pinned, pinned + n), [](int i) { return float(i); });
}
// The other way round: the host reuses a pinned buffer that a copy still reads.
CASE(host_reuses_buffer_too_early) {
    const int n = 1024;
    float *x = device_floats(n, Content::Nothing), *pinned = nullptr;
    CUDA_CHECK(cudaMallocHost(&pinned, n * sizeof(float)));
    cudaStream_t s = new_stream();
    for (int i = 0; i < n; i++) pinned[i] = float(i);
    CUDA_CHECK(cudaMemcpyAsync(x, pinned, n * sizeof(float), cudaMemcpyHostToDevice, s));
    if (!wrong) CUDA_CHECK(cudaStreamSynchronize(s));
    for (int i = 0; i < n; i++) pinned[i] = -1;
    CUDA_CHECK(cudaStreamSynchronize(s));
    expect_values(host_copy(x, n), [](int i) { return float(i); });
}
