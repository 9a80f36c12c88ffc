#include "llmc/ops/gemm.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "llmc/core/check.h"

namespace {
// The two functions as their libraries declare them (oneDNN dnnl.h, OpenBLAS cblas.h). Loading them
// at run time keeps the build free of both and lets us choose OpenBLAS's kernels before it starts.
using DnnlSgemm = int(char transa, char transb, int64_t M, int64_t N, int64_t K, float alpha,
                      const float* A, int64_t lda, const float* B, int64_t ldb, float beta,
                      float* C, int64_t ldc);
using CblasSgemm = void(int order, int transa, int transb, int M, int N, int K, float alpha,
                        const float* A, int lda, const float* B, int ldb, float beta, float* C,
                        int ldc);
constexpr int kCblasRowMajor = 101, kCblasPlain = 111, kCblasTransposed = 112;

struct Library {
    DnnlSgemm* dnnl = nullptr;
    CblasSgemm* cblas = nullptr;
    std::string name;
};

template <class Function>
Function* symbol(void* handle, const char* name) {
    return reinterpret_cast<Function*>(dlsym(handle, name));
}

bool load_onednn(Library& library) {
    for (const char* file : {"libdnnl.so.2", "libdnnl.so.3", "libdnnl.so"}) {
        void* handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
        if (!handle) continue;
        library.dnnl = symbol<DnnlSgemm>(handle, "dnnl_sgemm");
        library.name = str("oneDNN (", file, ")");
        return library.dnnl;
    }
    return false;
}

bool load_openblas(Library& library) {
    // OpenBLAS names its kernels at load time, and an older one takes a CPU that it does not know
    // for one without AVX2, at a quarter of the speed. All AVX2 machines get the same kernels.
    const bool choose = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                        !std::getenv("OPENBLAS_CORETYPE");
    if (choose) setenv("OPENBLAS_CORETYPE", "Haswell", 1);
    for (const char* file : {"libopenblas.so.0", "libopenblas.so"}) {
        void* handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
        if (!handle) continue;
        library.cblas = symbol<CblasSgemm>(handle, "cblas_sgemm");
        // 0: built without threads, 1: with its own, 2: with OpenMP. Each call runs on the thread
        // that makes it, so a pool of OpenBLAS's own must stay empty.
        const auto parallel = symbol<int()>(handle, "openblas_get_parallel");
        const auto set_threads = symbol<void(int)>(handle, "openblas_set_num_threads");
        const auto core = symbol<char*()>(handle, "openblas_get_corename");
        if (parallel && parallel() == 1 && set_threads) set_threads(1);
        library.name = str("OpenBLAS (", file, ", ", core ? core() : "?", ")");
        break;
    }
    if (choose) unsetenv("OPENBLAS_CORETYPE");
    return library.cblas;
}

Library load() {
    const char* asked = std::getenv("TRAIN_GPT_BLAS");
    Library library;
    if (asked && *asked) {
        CHECK(!std::strcmp(asked, "onednn") || !std::strcmp(asked, "openblas"), Exit::Usage,
              "unknown BLAS in TRAIN_GPT_BLAS", asked, "onednn or openblas");
        const bool found =
            *asked == 'o' && asked[1] == 'n' ? load_onednn(library) : load_openblas(library);
        CHECK(found, Exit::Resource, str("the library that TRAIN_GPT_BLAS asks for is not there"),
              asked, "", "scripts/install_deps.sh installs it");
        return library;
    }
    const bool found = __builtin_cpu_supports("avx512f")
                           ? load_onednn(library) || load_openblas(library)
                           : load_openblas(library) || load_onednn(library);
    CHECK(found, Exit::Resource, "no library for matrix products on the CPU", "",
          "libopenblas.so.0 or libdnnl.so", "scripts/install_deps.sh installs one");
    return library;
}

const Library& library() {
    static const Library loaded = load();
    return loaded;
}
} // namespace

const char* gemm_library() {
    return library().name.c_str();
}

void gemm_block(Op opA, Op opB, int64_t M, int64_t N, int64_t K, const float* A, int64_t lda,
                const float* B, int64_t ldb, float beta, float* C, int64_t ldc) {
    const Library& with = library();
    if (with.dnnl) {
        const int status =
            with.dnnl(char(opA), char(opB), M, N, K, 1.f, A, lda, B, ldb, beta, C, ldc);
        CHECK(status == 0, Exit::Resource, "dnnl_sgemm failed", str("status ", status));
    } else {
        const auto name = [](Op op) { return op == Op::Plain ? kCblasPlain : kCblasTransposed; };
        with.cblas(kCblasRowMajor, name(opA), name(opB), int(M), int(N), int(K), 1.f, A, int(lda),
                   B, int(ldb), beta, C, int(ldc));
    }
}
