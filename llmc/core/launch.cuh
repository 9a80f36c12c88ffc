// llmc/core/launch.cuh: the one way to start a kernel, and to reach its dynamic shared memory.
//
// The same source compiles under nvcc and, as plain C++, against the simulator in dev/sim. So
// kernels start through launch() instead of <<<>>>, reach dynamic shared memory through
// dyn_smem<T>() instead of `extern __shared__`, and align shared arrays with __align__(n).
#pragma once
#include <cuda_runtime.h>

#include <utility>

#include "llmc/core/backend.h"
#include "llmc/core/check.h"
#include "llmc/core/round.h"

// CUDA_CHECK(cudaMalloc(...)): a failed call throws Error(Exit::Resource) that names the call, the
// place, the kernel launched last and the training step.
#define CUDA_CHECK(call)                                                                   \
    do {                                                                                   \
        const cudaError_t cuda_error_ = (call);                                            \
        if (cuda_error_ != cudaSuccess) cuda_fail(cuda_error_, #call, __FILE__, __LINE__); \
    } while (0)
[[noreturn]] void cuda_fail(cudaError_t error, const char* call, const char* file, int line);

// Remembers which kernel was started last, for cuda_fail: most errors of a kernel surface only at
// a later call.
void cuda_note_kernel(const void* kernel);

inline cudaStream_t cuda_stream(CudaStream s) {
    return static_cast<cudaStream_t>(s.handle);
}

// launch(kernel, grid, block, bytes of dynamic shared memory, stream, kernel arguments...)
template <class... Params, class... Args>
void launch(void (*kernel)(Params...), dim3 grid, dim3 block, size_t smem, CudaStream stream,
            Args&&... args) {
    const void* id = reinterpret_cast<const void*>(kernel);
    cuda_note_kernel(id);
    // Above 48 KiB the kernel has to ask for it.
    if (smem > 48 * 1024)
        CUDA_CHECK(
            cudaFuncSetAttribute(id, cudaFuncAttributeMaxDynamicSharedMemorySize, int(smem)));
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = smem;
    config.stream = cuda_stream(stream);
    CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...));
}

// The block's dynamic shared memory, aligned to 128 bytes.
template <class T = unsigned char>
__device__ __forceinline__ T* dyn_smem() {
#ifdef CUSIM
    return static_cast<T*>(cusim::dyn_smem());
#else
    extern __shared__ __align__(128) unsigned char dyn_smem_base[];
    return reinterpret_cast<T*>(dyn_smem_base);
#endif
}
