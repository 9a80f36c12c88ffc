// Memory of the CUDA backend, and what is said when a CUDA call fails.
#include <cxxabi.h>

#include <cstdlib>
#include <string>

#include "llmc/core/backend.h"
#include "llmc/core/check.h"
#include "llmc/core/launch.cuh"

// ---- errors
// One thread issues all device work, so plain variables do.
static const void* last_kernel = nullptr;
static int64_t current_step = -1;

void cuda_note_kernel(const void* kernel) {
    last_kernel = kernel;
}
void cuda_note_step(int64_t step) {
    current_step = step;
}

static std::string kernel_name(const void* kernel) {
    if (!kernel) return "none";
#if CUDART_VERSION >= 12030
    const char* mangled = nullptr;
    if (cudaFuncGetName(&mangled, kernel) == cudaSuccess && mangled) {
        int status = 0;
        char* readable = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
        const std::string name = status == 0 ? readable : mangled;
        std::free(readable);
        return name;
    }
#endif
    return "unknown";
}

void cuda_fail(cudaError_t error, const char* call, const char* file, int line) {
    const std::string step = current_step >= 0 ? str(" in step ", current_step) : "";
    fail(Exit::Resource, str("CUDA call failed", step, ": ", call, " (", file, ":", line, ")"),
         str(cudaGetErrorName(error), " (", cudaGetErrorString(error),
             "); kernel launched last: ", kernel_name(last_kernel)),
         "",
         "the last checkpoint is safe; CUDA_LAUNCH_BLOCKING=1 makes the report name the kernel "
         "that failed");
}

// ---- memory
void* memory_alloc(size_t bytes, const char* what, CudaStream s) {
    if (bytes == 0) return nullptr;
    void* p = nullptr;
    const cudaError_t error = cudaMalloc(&p, bytes);
    if (error == cudaErrorMemoryAllocation) {
        cudaGetLastError(); // not sticky: the context works on
        size_t free_bytes = 0, total = 0;
        CUDA_CHECK(cudaMemGetInfo(&free_bytes, &total));
        fail(Exit::Resource, str("out of device memory for ", what),
             str(bytes, " bytes wanted, ", free_bytes, " of ", total, " free"), "",
             "a smaller --micro-batch, --seq-len or --model, --recompute block, --dtype bf16, or "
             "--zero 1..3 over more GPUs");
    }
    CUDA_CHECK(error);
    memory_zero(p, bytes, s);
    stream_sync(s);
    return p;
}
void memory_free(void* p, size_t, CudaStream s) {
    if (!p) return;
    stream_sync(s);
    CUDA_CHECK(cudaFree(p));
}
void memory_zero(void* p, size_t bytes, CudaStream s) {
    CUDA_CHECK(cudaMemsetAsync(p, 0, bytes, cuda_stream(s)));
}
void memory_to_host(void* host, const void* device, size_t bytes, CudaStream s) {
    CUDA_CHECK(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, cuda_stream(s)));
    stream_sync(s);
}
void memory_from_host(void* device, const void* host, size_t bytes, CudaStream s) {
    CUDA_CHECK(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, cuda_stream(s)));
    stream_sync(s);
}
void stream_sync(CudaStream s) {
    CUDA_CHECK(cudaStreamSynchronize(cuda_stream(s)));
}

int cuda_device_count() {
    int count = 0;
    if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
    cudaGetLastError(); // no driver, or none that fits: forget the error
    return 0;
}
