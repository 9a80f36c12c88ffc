// llmc/ops/blas.h: a BLAS of the machine, loaded at run time if it is there, as a yardstick for our
// own products (gemm.h) and as a substitute where someone asks for it.
#pragma once
#include <cstdint>

enum class Op : char { Plain = 'N', Transposed = 'T' };

enum class Blas { OneDnn, OpenBlas };

// C (M, N) = op(A) op(B) + beta C, row-major, on the library's own threads.
using BlasSgemm = void(Op opA, Op opB, int64_t M, int64_t N, int64_t K, const float* A, int64_t lda,
                       const float* B, int64_t ldb, float beta, float* C, int64_t ldc);

struct BlasLibrary {
    BlasSgemm* sgemm = nullptr;  // null where the library is not installed
    const char* name = "";       // "oneDNN (libdnnl.so.2)", "OpenBLAS (libopenblas.so.0, Haswell)"
};
// Loads the library on the first call.
const BlasLibrary& blas_library(Blas which);

// The faster one on this CPU, as far as measured, among those installed: oneDNN with AVX-512, else
// OpenBLAS.
const BlasLibrary& blas_library();
