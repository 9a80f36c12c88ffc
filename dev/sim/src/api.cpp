// The simulated device, the lock around the API, and faults on request.
#include "api.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "report.h"
#include "stream.h"

namespace cusim {
namespace {

std::recursive_mutex& api_mutex() {
    static auto* const mutex = new std::recursive_mutex;  // outlives every static destructor
    return *mutex;
}

cudaError_t broken = cudaSuccess;  // sticky, as on a GPU
cudaError_t last_error = cudaSuccess;

// Shared memory by compute capability: what a block may have, and what a multiprocessor holds.
// NVIDIA, CUDA C++ Programming Guide 12.6, table "Technical Specifications per Compute Capability".
struct ArchLimits {
    int arch;
    size_t smem_block_kib, smem_sm_kib;
    int threads_sm;
};
constexpr ArchLimits kArchs[] = {{75, 64, 64, 1024},  {80, 163, 164, 2048}, {86, 99, 100, 1536},
                                 {89, 99, 100, 1536}, {90, 227, 228, 2048}, {100, 227, 228, 2048},
                                 {120, 99, 100, 1536}};

cudaDeviceProp make_properties() {
    const int arch = int(env_number("CUSIM_ARCH", 90));
    const auto* limits = std::find_if(std::begin(kArchs), std::end(kArchs),
                                      [&](const ArchLimits& a) { return a.arch == arch; });
    if (limits == std::end(kArchs))
        fail("CUSIM_ARCH=%d: expected 75, 80, 86, 89, 90, 100, 120", arch);
    cudaDeviceProp p{};
    snprintf(p.name, sizeof p.name, "host simulator (sm_%d)", arch);
    p.totalGlobalMem = size_t(env_number("CUSIM_MEMORY_MB", 8192)) << 20;
    p.sharedMemPerBlock = 48 << 10;
    p.sharedMemPerBlockOptin = limits->smem_block_kib << 10;
    p.sharedMemPerMultiprocessor = limits->smem_sm_kib << 10;
    p.major = arch / 10;
    p.minor = arch % 10;
    p.multiProcessorCount = 4;
    p.warpSize = 32;
    p.maxThreadsPerBlock = 1024;
    p.maxThreadsPerMultiProcessor = limits->threads_sm;
    p.regsPerBlock = 65536;
    p.l2CacheSize = 50 << 20;
    return p;
}

constexpr auto kInsufficientDriver = cudaError_t(35);  // cudaErrorInsufficientDriver

// What the driver serves; one that is older than this build's runtime shows no devices.
int driver_version() {
    return int(env_number("CUSIM_DRIVER", CUDART_VERSION));
}
int device_count() {
    return driver_version() < CUDART_VERSION ? 0 : int(env_number("CUSIM_DEVICES", 1));
}
int current_device = 0;

cudaError_t remember(cudaError_t error) {
    if (error != cudaSuccess) last_error = error;
    return error;
}

}  // namespace

ApiLock::ApiLock() : held_(api_mutex()) {}
ApiLock::~ApiLock() = default;

const cudaDeviceProp& device_properties() {
    static const cudaDeviceProp properties = make_properties();
    return properties;
}

void count_launch(const std::string& kernel) {
    static const char* const request = getenv("CUSIM_FAIL_KERNEL");
    if (!request) return;
    static const char* const colon = strrchr(request, ':');
    if (!colon) fail("CUSIM_FAIL_KERNEL=%s: expected NAME:N", request);
    static int left = atoi(colon + 1);
    if (kernel.find(std::string(request, colon)) != std::string::npos && --left == 0)
        broken = cudaErrorIllegalAddress;
}
cudaError_t device_error() {
    return remember(broken);
}

}  // namespace cusim

using namespace cusim;

cudaError_t cudaGetDeviceCount(int* count) {
    *count = device_count();
    if (driver_version() < CUDART_VERSION) return remember(kInsufficientDriver);
    return remember(*count > 0 ? cudaSuccess : cudaErrorNoDevice);
}
cudaError_t cudaSetDevice(int device) {
    if (device < 0 || device >= device_count()) return remember(cudaErrorInvalidDevice);
    current_device = device;
    return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
    *device = current_device;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
    if (device < 0 || device >= device_count()) return remember(cudaErrorInvalidDevice);
    *p = device_properties();
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
    if (device < 0 || device >= device_count()) return remember(cudaErrorInvalidDevice);
    const cudaDeviceProp& p = device_properties();
    switch (attribute) {
        case cudaDevAttrMaxThreadsPerBlock:
            *value = p.maxThreadsPerBlock;
            break;
        case cudaDevAttrMaxSharedMemoryPerBlock:
            *value = int(p.sharedMemPerBlock);
            break;
        case cudaDevAttrMultiProcessorCount:
            *value = p.multiProcessorCount;
            break;
        case cudaDevAttrL2CacheSize:
            *value = p.l2CacheSize;
            break;
        case cudaDevAttrMaxThreadsPerMultiProcessor:
            *value = p.maxThreadsPerMultiProcessor;
            break;
        case cudaDevAttrComputeCapabilityMajor:
            *value = p.major;
            break;
        case cudaDevAttrComputeCapabilityMinor:
            *value = p.minor;
            break;
        case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
            *value = int(p.sharedMemPerMultiprocessor);
            break;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin:
            *value = int(p.sharedMemPerBlockOptin);
            break;
        case cudaDevAttrClockRate:
        case cudaDevAttrMemoryClockRate:
            *value = 0;
            break;  // a simulator has no clock
    }
    return cudaSuccess;
}
// A bus of their own for the devices of a simulated machine; none reaches into another's memory.
cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
    if (device < 0 || device >= device_count()) return remember(cudaErrorInvalidDevice);
    snprintf(id, size_t(length), "0000:%02x:00.0", device);
    return cudaSuccess;
}
cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr, int from, int to) {
    const int count = device_count();
    if (from < 0 || from >= count || to < 0 || to >= count || from == to)
        return remember(cudaErrorInvalidDevice);
    *value = 0;
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
    const bool absent = driver_version() == CUDART_VERSION && device_count() == 0;
    *version = absent ? 0 : driver_version();
    return cudaSuccess;
}

cudaError_t cudaPeekAtLastError() {
    return last_error;
}
cudaError_t cudaGetLastError() {
    const cudaError_t error = last_error;
    last_error = broken;  // a broken device stays broken
    return error;
}
const char* cudaGetErrorName(cudaError_t error) {
    switch (error) {
        case cudaSuccess:
            return "cudaSuccess";
        case cudaErrorInvalidValue:
            return "cudaErrorInvalidValue";
        case cudaErrorMemoryAllocation:
            return "cudaErrorMemoryAllocation";
        case cudaErrorInvalidConfiguration:
            return "cudaErrorInvalidConfiguration";
        case cudaErrorNoDevice:
            return "cudaErrorNoDevice";
        case cudaErrorInvalidDevice:
            return "cudaErrorInvalidDevice";
        case cudaErrorNotReady:
            return "cudaErrorNotReady";
        case cudaErrorIllegalAddress:
            return "cudaErrorIllegalAddress";
        case cudaErrorUnknown:
            return "cudaErrorUnknown";
    }
    return "unrecognized error code";
}
const char* cudaGetErrorString(cudaError_t error) {
    switch (error) {
        case cudaSuccess:
            return "no error";
        case cudaErrorMemoryAllocation:
            return "out of memory";
        case cudaErrorNoDevice:
            return "no CUDA-capable device is detected";
        case cudaErrorInvalidDevice:
            return "invalid device ordinal";
        case cudaErrorIllegalAddress:
            return "an illegal memory access was encountered";
        default:
            return cudaGetErrorName(error);
    }
}
