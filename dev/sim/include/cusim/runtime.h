// dev/sim: the part of the CUDA runtime API that the project uses.
// Misuse that CUDA answers with an error code or with silence aborts here, with a report: see
// README.md. Only running out of memory, a missing device and injected faults come back as codes.
#pragma once
#include <functional>
#include <tuple>
#include <utility>

#include "cusim/device.h"

#define CUDART_VERSION 13000

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorNotReady = 600,
    cudaErrorIllegalAddress = 700,
    cudaErrorUnknown = 999,
};
enum cudaMemcpyKind {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice,
    cudaMemcpyDefault,
};
enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
    cudaFuncAttributePreferredSharedMemoryCarveout = 9,
};
enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock = 1,
    cudaDevAttrMaxSharedMemoryPerBlock = 8,
    cudaDevAttrClockRate = 13,
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrMemoryClockRate = 36,
    cudaDevAttrL2CacheSize = 38,
    cudaDevAttrMaxThreadsPerMultiProcessor = 39,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
};
enum cudaStreamCaptureMode {
    cudaStreamCaptureModeGlobal,
    cudaStreamCaptureModeThreadLocal,
    cudaStreamCaptureModeRelaxed,
};
constexpr unsigned cudaStreamDefault = 0, cudaStreamNonBlocking = 1;
constexpr unsigned cudaEventDefault = 0, cudaEventDisableTiming = 2;
constexpr unsigned cudaHostAllocDefault = 0;

typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;
typedef struct CUgraph_st* cudaGraph_t;
typedef struct CUgraphExec_st* cudaGraphExec_t;

struct cudaLaunchAttribute {
    int id;
    int val[16];
};
struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute* attrs;
    unsigned numAttrs;
};
struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin, sharedMemPerMultiprocessor;
    int major, minor, multiProcessorCount, warpSize;
    int maxThreadsPerBlock, maxThreadsPerMultiProcessor, regsPerBlock, l2CacheSize;
};

// ---- devices and errors (api.cpp)
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaRuntimeGetVersion(int* version);
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();
const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaFuncGetName(const char** name, const void* kernel);
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value);
template <class... Params>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Params...), cudaFuncAttribute attribute,
                                 int value) {
    return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}

// ---- memory (memory.cpp)
namespace cusim {
enum class MemoryKind { Device, PinnedHost, Managed };
cudaError_t memory_alloc(void** p, size_t bytes, MemoryKind kind, Where at);
}  // namespace cusim
template <class T>
cudaError_t cudaMalloc(T** p, size_t bytes, CUSIM_AT) {
    return cusim::memory_alloc(reinterpret_cast<void**>(p), bytes, cusim::MemoryKind::Device, at);
}
template <class T>
cudaError_t cudaMallocHost(T** p, size_t bytes, unsigned = 0, CUSIM_AT) {
    return cusim::memory_alloc(reinterpret_cast<void**>(p), bytes, cusim::MemoryKind::PinnedHost,
                               at);
}
template <class T>
cudaError_t cudaHostAlloc(T** p, size_t bytes, unsigned flags, CUSIM_AT) {
    return cudaMallocHost(p, bytes, flags, at);
}
template <class T>
cudaError_t cudaMallocManaged(T** p, size_t bytes, unsigned = 1, CUSIM_AT) {
    return cusim::memory_alloc(reinterpret_cast<void**>(p), bytes, cusim::MemoryKind::Managed, at);
}
cudaError_t cudaFree(void* p, CUSIM_AT);
cudaError_t cudaFreeHost(void* p, CUSIM_AT);
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes);
cudaError_t cudaMemcpy(void* dst, const void* src, size_t bytes, cudaMemcpyKind kind, CUSIM_AT);
cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream = nullptr, CUSIM_AT);
cudaError_t cudaMemset(void* p, int value, size_t bytes, CUSIM_AT);
cudaError_t cudaMemsetAsync(void* p, int value, size_t bytes, cudaStream_t stream = nullptr,
                            CUSIM_AT);
// __device__ and __constant__ variables are ordinary globals here.
template <class T>
cudaError_t cudaMemcpyToSymbol(T& symbol, const void* src, size_t bytes, size_t offset = 0) {
    cudaDeviceSynchronize();
    memcpy(reinterpret_cast<char*>(&symbol) + offset, src, bytes);
    return cudaSuccess;
}
template <class T>
cudaError_t cudaMemcpyFromSymbol(void* dst, const T& symbol, size_t bytes, size_t offset = 0) {
    cudaDeviceSynchronize();
    memcpy(dst, reinterpret_cast<const char*>(&symbol) + offset, bytes);
    return cudaSuccess;
}

// ---- streams, events, graphs (stream.cpp)
cudaError_t cudaStreamCreate(cudaStream_t* stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);
cudaError_t cudaEventCreate(cudaEvent_t* event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                 unsigned long long flags = 0);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, void (*fn)(void*), void* data);

// ---- launches (kernel.cpp)
namespace cusim {
struct Launch {
    const void* kernel;
    dim3 grid, block;
    size_t smem;
};
void check_kernel_argument(const void* p, int index, const void* kernel);
cudaError_t enqueue_kernel(cudaStream_t stream, const Launch& launch, std::function<void()> body);

// Runs `work` as an operation of the stream: how the libraries of this simulator are built.
void enqueue_work(cudaStream_t stream, const char* what, std::function<void()> work);
// What a library's operation touches, for trace mode; call it from inside the operation.
void library_reads(const void* p, size_t bytes, const char* what);
void library_writes(const void* p, size_t bytes, const char* what);
}  // namespace cusim

template <class... Params, class... Args>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Params...),
                               Args&&... args) {
    static_assert(sizeof...(Params) == sizeof...(Args), "wrong number of kernel arguments");
    const void* id = reinterpret_cast<const void*>(kernel);
    // As on a GPU, arguments are copied when the launch is issued.
    std::tuple<Params...> copies(static_cast<Params>(std::forward<Args>(args))...);
    int index = 0;
    auto check = [&](const auto& argument) {
        using Type = std::decay_t<decltype(argument)>;
        if constexpr (std::is_pointer_v<Type> && !std::is_function_v<std::remove_pointer_t<Type>>)
            cusim::check_kernel_argument(reinterpret_cast<const void*>(argument), index, id);
        index++;
    };
    std::apply([&](const auto&... arguments) { (check(arguments), ...); }, copies);
    const cusim::Launch launch{id, config->gridDim, config->blockDim, config->dynamicSmemBytes};
    return cusim::enqueue_kernel(config->stream, launch,
                                 [kernel, copies] { std::apply(kernel, copies); });
}
