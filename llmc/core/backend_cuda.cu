// Memory of the CUDA backend, and what is said when a CUDA call fails.
#include <cxxabi.h>

#include <cstdlib>
#include <string>

#include "llmc/core/backend.h"
#include "llmc/core/check.h"
#include "llmc/core/launch.cuh"

// ---- errors
// What this thread has launched: the one that asks what went wrong.
static thread_local const void *last_kernel = nullptr, *kernel_before = nullptr;
static int64_t current_step = -1;

void cuda_note_kernel(const void* kernel) {
    kernel_before = last_kernel;
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
    constexpr int kNoKernelImage = 209, kUnsupportedPtx = 222;
    const bool other_gpu = int(error) == kNoKernelImage || int(error) == kUnsupportedPtx;
    const std::string step = current_step >= 0 ? str(" in step ", current_step) : "";
    fail(Exit::Resource, str("CUDA call failed", step, ": ", call, " (", file, ":", line, ")"),
         str(cudaGetErrorName(error), " (", cudaGetErrorString(error), "); kernels launched last: ",
             kernel_name(kernel_before), ", then ", kernel_name(last_kernel)),
         "",
         other_gpu
             ? "this build has no code for this GPU; `make CUDA=1 GPU_ARCH=...` builds it"
             : "the last checkpoint is safe; CUDA_LAUNCH_BLOCKING=1 makes the report name the "
               "kernel that failed");
}

// ---- memory
static size_t in_use = 0;
size_t memory_in_use(CudaStream) {
    return in_use;
}

void* memory_alloc(size_t bytes, const char* what, CudaStream s) {
    if (bytes == 0) return nullptr;
    void* p = nullptr;
    const cudaError_t error = cudaMalloc(&p, bytes);
    if (error == cudaErrorMemoryAllocation) {
        cudaGetLastError();  // not sticky: the context works on
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
    in_use += bytes;
    return p;
}
// Destructors call this, also while an error of the device is on its way to main(): a device that
// is broken has lost its memory anyway.
void memory_free(void* p, size_t bytes, CudaStream s) {
    if (!p) return;
    cudaStreamSynchronize(cuda_stream(s));
    cudaFree(p);
    in_use -= bytes;
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

// Non-blocking: it does not wait for the legacy default stream, which nothing here uses.
StreamOwner<CudaStream>::StreamOwner() {
    cudaStream_t stream = nullptr;
    CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    stream_.handle = stream;
}
StreamOwner<CudaStream>::~StreamOwner() {
    cudaStreamDestroy(cuda_stream(stream_));
}

// ---- the machine's GPUs
int cuda_device_count() {
    int count = 0;
    if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
    cudaGetLastError();  // no driver, or none that fits: forget the error
    return 0;
}

std::string cuda_absence() {
    int count = 0, driver = 0, runtime = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    cudaGetLastError();
    if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
    if (cudaRuntimeGetVersion(&runtime) != cudaSuccess) runtime = CUDART_VERSION;
    return cuda_absence(error, cudaGetErrorName(error), driver, runtime);
}

// Versions come as 1000 * major + 10 * minor; a driver of 0 is none.
std::string cuda_absence(int error, const char* name, int driver, int runtime) {
    const auto version = [](int v) { return str(v / 1000, ".", v % 1000 / 10); };
    if (driver == 0) return "no NVIDIA driver on this machine";
    if (driver / 1000 < runtime / 1000)
        return str("the NVIDIA driver is too old: it serves CUDA ", version(driver),
                   ", this build needs ", runtime / 1000, ".0");
    if (error == int(cudaErrorNoDevice) || error == int(cudaSuccess))
        return "an NVIDIA driver, but no GPU (CUDA_VISIBLE_DEVICES may hide it)";
    return str("the NVIDIA driver says ", name);
}

void cuda_device_use(int device) {
    CUDA_CHECK(cudaSetDevice(device));
}

CudaDevice cuda_device() {
    int device = 0;
    CUDA_CHECK(cudaGetDevice(&device));
    cudaDeviceProp p{};
    CUDA_CHECK(cudaGetDeviceProperties(&p, device));
    return {p.name, 10 * p.major + p.minor, p.totalGlobalMem};
}
