// cuBLASLt, found at run time: the functions that matmul.cu calls, each handing its call on to the
// library. So one binary also starts where there is no CUDA toolkit, and trains on the CPU there.
// In the simulator these functions are the simulator's.
#ifndef CUSIM
#include <cublasLt.h>
#include <dlfcn.h>

#include <string>

#include "llmc/core/check.h"

static void* open_library() {
    const std::string name = str("libcublasLt.so.", CUBLAS_VER_MAJOR);
    std::string reason;
    for (const char* folder : {"", "/usr/local/cuda/lib64/"}) {
        if (void* handle = dlopen((folder + name).c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
        const char* error = dlerror();
        if (reason.empty()) reason = error ? error : "unknown";
    }
    fail(Exit::Resource, "cannot load cuBLASLt", reason, name,
         "install cuBLAS of the CUDA toolkit, or name its folder in LD_LIBRARY_PATH");
}

static void* symbol(const char* name) {
    static void* const library = open_library();
    void* found = dlsym(library, name);
    CHECK(found, Exit::Resource, "cuBLASLt lacks a function", name);
    return found;
}

#define FORWARD(name, parameters, arguments)                                          \
    cublasStatus_t name parameters {                                                  \
        static auto* const theirs = reinterpret_cast<decltype(&name)>(symbol(#name)); \
        return theirs arguments;                                                      \
    }

extern "C" {
FORWARD(cublasLtCreate, (cublasLtHandle_t * handle), (handle))
FORWARD(cublasLtMatmulDescCreate,
        (cublasLtMatmulDesc_t * desc, cublasComputeType_t compute, cudaDataType_t scale),
        (desc, compute, scale))
FORWARD(cublasLtMatmulDescSetAttribute,
        (cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const void* value,
         size_t bytes),
        (desc, attribute, value, bytes))
FORWARD(cublasLtMatrixLayoutCreate,
        (cublasLtMatrixLayout_t * layout, cudaDataType type, uint64_t rows, uint64_t cols,
         int64_t ld),
        (layout, type, rows, cols, ld))
FORWARD(cublasLtMatmulPreferenceCreate, (cublasLtMatmulPreference_t * preference), (preference))
FORWARD(cublasLtMatmulPreferenceDestroy, (cublasLtMatmulPreference_t preference), (preference))
FORWARD(cublasLtMatmulPreferenceSetAttribute,
        (cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
         const void* value, size_t bytes),
        (preference, attribute, value, bytes))
FORWARD(cublasLtMatmulAlgoGetHeuristic,
        (cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
         cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
         cublasLtMatmulPreference_t preference, int wanted,
         cublasLtMatmulHeuristicResult_t results[], int* found),
        (handle, desc, a, b, c, d, preference, wanted, results, found))
FORWARD(cublasLtMatmul,
        (cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha, const void* A,
         cublasLtMatrixLayout_t a, const void* B, cublasLtMatrixLayout_t b, const void* beta,
         const void* C, cublasLtMatrixLayout_t c, void* D, cublasLtMatrixLayout_t d,
         const cublasLtMatmulAlgo_t* algo, void* workspace, size_t bytes, cudaStream_t stream),
        (handle, desc, alpha, A, a, B, b, beta, C, c, D, d, algo, workspace, bytes, stream))
}
#endif
