// cublas_v2.h - cuBLAS subset on the host: column-major GEMM, bf16 or fp32 in and out, fp32 accumulation.
// -DCUSIM_CBLAS and -lopenblas use CBLAS; without it a plain loop does.
#pragma once
#include <vector>
#include "cuda_bf16.h"
#include "library_types.h"
#ifndef CUSIM_NO_CBLAS
#include <cblas.h>
#endif
enum cublasStatus_t { CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_NOT_SUPPORTED = 15 };
enum cublasOperation_t { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 };
enum cublasComputeType_t { CUBLAS_COMPUTE_32F = 68, CUBLAS_COMPUTE_32F_FAST_TF32 = 77 };
enum cublasGemmAlgo_t { CUBLAS_GEMM_DEFAULT = -1 };
enum cublasMath_t { CUBLAS_DEFAULT_MATH = 0, CUBLAS_TF32_TENSOR_OP_MATH = 3 };
struct cublasContext { cudaStream_t stream = nullptr; };
typedef cublasContext *cublasHandle_t;
namespace cusim {
inline float get(const void *p, cudaDataType t, size_t i) { return t == CUDA_R_16BF ? float(static_cast<const __nv_bfloat16 *>(p)[i]) : static_cast<const float *>(p)[i]; }
inline void put(void *p, cudaDataType t, size_t i, float v) { if (t == CUDA_R_16BF) static_cast<__nv_bfloat16 *>(p)[i] = __nv_bfloat16(v); else static_cast<float *>(p)[i] = v; }
inline float gelu(float x) { return 0.5f * x * (1 + tanhf(0.79788456f * (x + 0.044715f * x * x * x))); }
inline float dgelu(float x) { float u = 0.79788456f * (x + 0.044715f * x * x * x), t = tanhf(u); return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * 0.79788456f * (1 + 3 * 0.044715f * x * x); }
struct Gemm {
  bool ta, tb; int m, n, k; float alpha, beta; const void *A, *B, *C; void *D; int lda, ldb, ldc, ldd; cudaDataType a, b, c, d;
  long sa = 0, sb = 0, sc = 0, sd = 0; int batch = 1, epilogue = 0; const void *bias = nullptr; void *aux = nullptr; int ldaux = 0; cudaDataType bt = CUDA_R_16BF;
  static size_t bytes(cudaDataType t) { return t == CUDA_R_16BF ? 2 : 4; }
  void run() const {
    std::vector<float> a32(size_t(m) * k), b32(size_t(k) * n), d32(size_t(m) * n);   // op(A) as k-major rows of m, op(B) likewise
    for (int z = 0; z < batch; z++) {
      auto at = [z](const void *p, cudaDataType t, long s) { return p ? static_cast<const char *>(p) + size_t(s) * z * bytes(t) : nullptr; };
      const void *Az = at(A, a, sa), *Bz = at(B, b, sb), *Cz = at(C, c, sc); void *Dz = const_cast<char *>(static_cast<const char *>(at(D, d, sd)));
      for (int q = 0; q < k; q++) for (int i = 0; i < m; i++) a32[size_t(q) * m + i] = get(Az, a, ta ? size_t(i) * lda + q : size_t(q) * lda + i);
      for (int j = 0; j < n; j++) for (int q = 0; q < k; q++) b32[size_t(j) * k + q] = get(Bz, b, tb ? size_t(q) * ldb + j : size_t(j) * ldb + q);
#ifndef CUSIM_NO_CBLAS
      cblas_sgemm(CblasColMajor, CblasNoTrans, CblasNoTrans, m, n, k, alpha, a32.data(), m, b32.data(), k, 0.f, d32.data(), m);
#else
      for (int j = 0; j < n; j++) {
        float *o = &d32[size_t(j) * m]; for (int i = 0; i < m; i++) o[i] = 0;
        for (int q = 0; q < k; q++) { float v = alpha * b32[size_t(j) * k + q]; const float *r = &a32[size_t(q) * m]; for (int i = 0; i < m; i++) o[i] += v * r[i]; }
      }
#endif
      for (int j = 0; j < n; j++) for (int i = 0; i < m; i++) {
        float v = d32[size_t(j) * m + i]; if (beta != 0) v += beta * get(Cz, c, size_t(j) * ldc + i);
        if (epilogue & 4 && bias) v += get(bias, bt, i);                       // bias over the rows of D
        if (epilogue & 128 && aux) put(aux, d, size_t(j) * ldaux + i, v);      // GELU_AUX keeps the input of the GELU
        if (epilogue & 32) v = gelu(v);
        if (epilogue & 64) v *= dgelu(get(aux, d, size_t(j) * ldaux + i));
        put(Dz, d, size_t(j) * ldd + i, v);
      }
    }
  }
};
}  // namespace cusim
inline cublasStatus_t cublasCreate(cublasHandle_t *h) { *h = new cublasContext; return CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasDestroy(cublasHandle_t h) { delete h; return CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasSetStream(cublasHandle_t h, cudaStream_t s) { h->stream = s; return CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) { return CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const void *alpha, const void *A, cudaDataType a, int lda, long long sa,
    const void *B, cudaDataType b, int ldb, long long sb, const void *beta, void *C, cudaDataType c, int ldc, long long sc, int batch, cublasComputeType_t, cublasGemmAlgo_t) {
  cusim::Gemm g{ta != CUBLAS_OP_N, tb != CUBLAS_OP_N, m, n, k, *static_cast<const float *>(alpha), *static_cast<const float *>(beta), A, B, C, C, lda, ldb, ldc, ldc, a, b, c, c, sa, sb, sc, sc, batch};
  cusim_enqueue(h->stream, "gemm", [g] { g.run(); }); return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasGemmEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const void *alpha, const void *A, cudaDataType a, int lda,
    const void *B, cudaDataType b, int ldb, const void *beta, void *C, cudaDataType c, int ldc, cublasComputeType_t ct, cublasGemmAlgo_t al) {
  return cublasGemmStridedBatchedEx(h, ta, tb, m, n, k, alpha, A, a, lda, 0, B, b, ldb, 0, beta, C, c, ldc, 0, 1, ct, al);
}
