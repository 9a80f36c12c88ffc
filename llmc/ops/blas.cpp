#include "llmc/ops/blas.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string>

#include "llmc/core/check.h"

// The two functions as their libraries declare them (oneDNN's dnnl.h, OpenBLAS's cblas.h).
using DnnlSgemm = int(char transa, char transb, int64_t M, int64_t N, int64_t K, float alpha,
                      const float* A, int64_t lda, const float* B, int64_t ldb, float beta,
                      float* C, int64_t ldc);
using CblasSgemm = void(int order, int transa, int transb, int M, int N, int K, float alpha,
                        const float* A, int lda, const float* B, int ldb, float beta, float* C,
                        int ldc);
static DnnlSgemm* dnnl_sgemm = nullptr;
static CblasSgemm* cblas_sgemm = nullptr;

template <class Function>
static Function* symbol(void* handle, const char* name) {
    return reinterpret_cast<Function*>(dlsym(handle, name));
}

static BlasLibrary load_onednn() {
    for (const char* file : {"libdnnl.so.2", "libdnnl.so.3", "libdnnl.so"}) {
        void* handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
        if (!handle) continue;
        dnnl_sgemm = symbol<DnnlSgemm>(handle, "dnnl_sgemm");
        if (!dnnl_sgemm) continue;
        static const std::string name = str("oneDNN (", file, ")");
        return {[](Op opA, Op opB, int64_t M, int64_t N, int64_t K, const float* A, int64_t lda,
                   const float* B, int64_t ldb, float beta, float* C, int64_t ldc) {
                    const int status = dnnl_sgemm(char(opA), char(opB), M, N, K, 1.f, A, lda, B,
                                                  ldb, beta, C, ldc);
                    CHECK(status == 0, Exit::Resource, "dnnl_sgemm failed", str("status ", status));
                },
                name.c_str()};
    }
    return {};
}

static BlasLibrary load_openblas() {
    // OpenBLAS chooses its kernels as it is loaded, and an older one takes a CPU that it does not
    // know for one without AVX2, at a quarter of the speed.
    const char* const core_type =
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512dq")
            ? "SkylakeX"
        : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? "Haswell"
                                                                          : nullptr;
    const bool choose = core_type && !std::getenv("OPENBLAS_CORETYPE");
    if (choose) setenv("OPENBLAS_CORETYPE", core_type, 1);
    BlasLibrary library;
    for (const char* file : {"libopenblas.so.0", "libopenblas.so"}) {
        void* handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
        if (!handle) continue;
        // Of its three builds (0: serial, 1: own threads, 2: OpenMP) only the last shares our
        // threads.
        const auto parallel = symbol<int()>(handle, "openblas_get_parallel");
        const auto core = symbol<char*()>(handle, "openblas_get_corename");
        cblas_sgemm = symbol<CblasSgemm>(handle, "cblas_sgemm");
        if (!cblas_sgemm || !parallel || parallel() != 2) continue;
        static const std::string name = str("OpenBLAS (", file, ", ", core ? core() : "?", ")");
        library = {[](Op opA, Op opB, int64_t M, int64_t N, int64_t K, const float* A, int64_t lda,
                      const float* B, int64_t ldb, float beta, float* C, int64_t ldc) {
                       constexpr int kRowMajor = 101, kPlain = 111, kTransposed = 112;
                       cblas_sgemm(kRowMajor, opA == Op::Plain ? kPlain : kTransposed,
                                   opB == Op::Plain ? kPlain : kTransposed, int(M), int(N), int(K),
                                   1.f, A, int(lda), B, int(ldb), beta, C, int(ldc));
                   },
                   name.c_str()};
        break;
    }
    if (choose) unsetenv("OPENBLAS_CORETYPE");
    return library;
}

const BlasLibrary& blas_library(Blas which) {
    if (which == Blas::OneDnn) {
        static const BlasLibrary loaded = load_onednn();
        return loaded;
    }
    static const BlasLibrary loaded = load_openblas();
    return loaded;
}

const BlasLibrary& blas_library() {
    const Blas first = __builtin_cpu_supports("avx512f") ? Blas::OneDnn : Blas::OpenBlas;
    const Blas second = first == Blas::OneDnn ? Blas::OpenBlas : Blas::OneDnn;
    return blas_library(blas_library(first).sgemm ? first : second);
}
