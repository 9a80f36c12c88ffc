// llmc/core/host_device.h: functions that are one arithmetic for the CPU and for kernels.
#pragma once

// A function that a kernel may call too. Part of whoever calls it, so that each file has its own.
#ifdef __CUDACC__
#define HOST_DEVICE __host__ __device__ __forceinline__
#else
#define HOST_DEVICE inline __attribute__((always_inline))
#endif
