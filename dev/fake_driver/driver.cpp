// A CUDA driver for machines without one: it takes every kernel and runs none.
//
// cuDNN makes its kernels on the CPU, for a GPU that need only be described, but hands them to the
// driver as soon as they are made. Loaded before cuDNN, this library stands in for libcuda.so.1, so
// that a plan can be made to its end, and remembers which kernels it was given.
// (llmc/ops/attention_cudnn_test.cpp)
#include <cstring>
#include <string>

// cuDNN asks for the functions by name; it calls those below the list, and must find the others.
#define SUCCEEDS(name) \
    int name() {       \
        return 0;      \
    }

namespace {
std::string kernels;
int some_handle;
}  // namespace

extern "C" {
// The kernels that were loaded, as "sm_80 NAME" lines.
const char* fake_driver_kernels() {
    return kernels.c_str();
}

// NVIDIA's machine code is an ELF file whose flags (at byte 48) hold the architecture: by its
// second byte in the newer form, which is marked by a 5 or later in byte 8, else by its first byte.
int cuLibraryLoadData(void** library, const void* code, ...) {
    unsigned flags = 0;
    std::memcpy(&flags, static_cast<const char*>(code) + 48, sizeof flags);
    kernels += "sm_" + std::to_string(flags >> 8 & 0xff) + " ";
    *library = &some_handle;
    return 0;
}
int cuLibraryGetKernel(void** kernel, void*, const char* name) {
    kernels += std::string(name) + "\n";
    *kernel = &some_handle;
    return 0;
}
int cuKernelGetFunction(void** function, void*) {
    *function = &some_handle;
    return 0;
}
// The CUDA runtime inside cuDNN is told that there is no GPU.
int cuInit(unsigned) {
    return 100;  // CUDA_ERROR_NO_DEVICE
}

SUCCEEDS(cuCtxGetCurrent)
SUCCEEDS(cuCtxGetDevice)
SUCCEEDS(cuCtxGetLimit)
SUCCEEDS(cuCtxPopCurrent)
SUCCEEDS(cuCtxPushCurrent)
SUCCEEDS(cuCtxSetCurrent)
SUCCEEDS(cuDeviceGet)
SUCCEEDS(cuDeviceGetCount)
SUCCEEDS(cuDriverGetVersion)
SUCCEEDS(cuFuncGetAttribute)
SUCCEEDS(cuFuncSetAttribute)
SUCCEEDS(cuGetErrorName)
SUCCEEDS(cuGetErrorString)
SUCCEEDS(cuGetProcAddress)
SUCCEEDS(cuGetProcAddress_v2)
SUCCEEDS(cuGraphAddKernelNode)
SUCCEEDS(cuGraphAddKernelNode_v2)
SUCCEEDS(cuKernelGetAttribute)
SUCCEEDS(cuKernelSetAttribute)
SUCCEEDS(cuLaunchCooperativeKernel)
SUCCEEDS(cuLaunchKernel)
SUCCEEDS(cuLaunchKernelEx)
SUCCEEDS(cuLibraryGetGlobal)
SUCCEEDS(cuLibraryGetModule)
SUCCEEDS(cuLibraryLoadFromFile)
SUCCEEDS(cuLibraryUnload)
SUCCEEDS(cuLinkAddData)
SUCCEEDS(cuLinkComplete)
SUCCEEDS(cuLinkCreate)
SUCCEEDS(cuLinkDestroy)
SUCCEEDS(cuMemcpyHtoDAsync)
SUCCEEDS(cuMemcpyHtoDAsync_v2)
SUCCEEDS(cuModuleGetFunction)
SUCCEEDS(cuModuleGetGlobal)
SUCCEEDS(cuModuleGetGlobal_v2)
SUCCEEDS(cuModuleLoadData)
SUCCEEDS(cuModuleLoadDataEx)
SUCCEEDS(cuModuleUnload)
SUCCEEDS(cuOccupancyMaxActiveBlocksPerMultiprocessor)
SUCCEEDS(cuOccupancyMaxActiveClusters)
SUCCEEDS(cuOccupancyMaxPotentialClusterSize)
SUCCEEDS(cuStreamGetCtx)
SUCCEEDS(cuTensorMapEncodeIm2col)
SUCCEEDS(cuTensorMapEncodeTiled)
}
