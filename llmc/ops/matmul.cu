// Linear layers on CUDA: cuBLASLt, with what follows a matmul done in its epilogue.
//
// cuBLAS thinks in column-major matrices. A row-major (R, K) matrix is, untouched, a column-major
// (K, R) one, so each product is asked for transposed and its operands change places:
//   y  = x w^T     (N, OC)  ->  y^T  (OC x N) = op(w) x^T     A = w transposed, B = x
//   dx = dy w      (N, C)   ->  dx^T (C x N)  = w^T dy^T      A = w,            B = dy
//   dw = dy^T x    (OC, C)  ->  dw^T (C x OC) = x^T dy        A = x,            B = dy transposed
// Sums are kept in fp32; gradients of parameters are fp32 for either Elem and are added to what is
// there (beta = 1).
//
// Which algorithm serves a product is asked once and remembered. Where the library has none with
// the wanted epilogue (an odd size, say), the epilogue runs as a kernel of its own; where it has
// none for a product of bf16 at all, gemm_mma.cuh serves.
#include "llmc/ops/matmul.h"

#include <cublasLt.h>

#include <map>
#include <tuple>

#include "llmc/ops/gelu.h"
#include "llmc/ops/gemm_mma.cuh"
#include "llmc/ops/kernel.cuh"
#include "llmc/ops/matmul.cuh"
#include "llmc/ops/partial_sums.cuh"

MatmulPath matmul_path = MatmulPath::Fused;

namespace {

constexpr size_t kLibraryBytes = size_t(32) << 20;  // what cuBLASLt wants on sm_90

#define CUBLAS_CHECK(call)                                                                      \
    do {                                                                                        \
        const cublasStatus_t status_ = (call);                                                  \
        CHECK(status_ == CUBLAS_STATUS_SUCCESS, Exit::Resource, "cuBLASLt call failed: " #call, \
              str("status ", int(status_)));                                                    \
    } while (0)

template <class Elem>
constexpr cudaDataType_t kDataType = std::is_same_v<Elem, float> ? CUDA_R_32F : CUDA_R_16BF;

// ---- one product and its plan
// Column-major, densely stored: D (m x n) = op(A) (m x k) op(B) (k x n), then the epilogue.
struct Product {
    const void* a;
    bool transpose_a;
    const void* b;
    bool transpose_b;
    void* d;
    int m, n, k;
    cudaDataType_t in, out;
    bool accumulate;  // D += instead of D =
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    void* bias = nullptr;  // read, or written (bias gradient)
    void* aux = nullptr;   // (m x n): what the GELU sees
};

struct Plan {
    bool found = false;
    cublasLtMatmulDesc_t desc = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;
    cublasLtMatmulAlgo_t algo{};
};

// The library may choose instructions that need aligned pointers, so alignment is part of the key.
uint32_t alignment(const void* p) {
    const uintptr_t address = reinterpret_cast<uintptr_t>(p) | 256;
    return uint32_t(address & (~address + 1));
}

cublasLtHandle_t library() {
    static const cublasLtHandle_t handle = [] {
        cublasLtHandle_t h = nullptr;
        CUBLAS_CHECK(cublasLtCreate(&h));
        return h;
    }();
    return handle;
}

void set_pointers(cublasLtMatmulDesc_t desc, const Product& p) {
    if (p.bias)
        CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                    &p.bias, sizeof p.bias));
    if (p.aux)
        CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                                                    &p.aux, sizeof p.aux));
}

Plan plan_create(const Product& p) {
    Plan plan;
    const cublasOperation_t op_a = p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t op_b = p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    CUBLAS_CHECK(cublasLtMatmulDescCreate(&plan.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const auto set = [&](cublasLtMatmulDescAttributes_t what, const auto& value) {
        CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(plan.desc, what, &value, sizeof value));
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, op_a);
    set(CUBLASLT_MATMUL_DESC_TRANSB, op_b);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, p.epilogue);
    if (p.aux) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, int64_t(p.m));
    set_pointers(plan.desc, p);

    const auto layout = [](cublasLtMatrixLayout_t* l, cudaDataType_t type, int rows, int cols) {
        CUBLAS_CHECK(cublasLtMatrixLayoutCreate(l, type, uint64_t(rows), uint64_t(cols), rows));
    };
    layout(&plan.a, p.in, p.transpose_a ? p.k : p.m, p.transpose_a ? p.m : p.k);
    layout(&plan.b, p.in, p.transpose_b ? p.n : p.k, p.transpose_b ? p.k : p.n);
    layout(&plan.d, p.out, p.m, p.n);

    cublasLtMatmulPreference_t preference;
    CUBLAS_CHECK(cublasLtMatmulPreferenceCreate(&preference));
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t what, const auto& value) {
        CUBLAS_CHECK(cublasLtMatmulPreferenceSetAttribute(preference, what, &value, sizeof value));
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kLibraryBytes);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(p.a));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(p.b));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(p.d));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(p.d));
    cublasLtMatmulHeuristicResult_t best{};
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        library(), plan.desc, plan.a, plan.b, plan.d, plan.d, preference, 1, &best, &count);
    CUBLAS_CHECK(cublasLtMatmulPreferenceDestroy(preference));
    plan.found = status == CUBLAS_STATUS_SUCCESS && count > 0;
    plan.algo = best.algo;
    return plan;
}

// Runs the product; false where the library has no algorithm for it with this epilogue.
bool product_try(const Product& p, Workspace ws, CudaStream s) {
    workspace_check("matmul", ws, kLibraryBytes);
    if (matmul_path == MatmulPath::Own) return false;
    if (matmul_path == MatmulPath::Plain && p.epilogue != CUBLASLT_EPILOGUE_DEFAULT) return false;
    using Key = std::tuple<bool, bool, int, int, int, int, int, int, uint32_t, uint32_t, uint32_t,
                           uint32_t, uint32_t>;
    // One thread issues all device work, so the table needs no lock. It grows with the number of
    // different products, a few tens in a model, and lives as long as the library's handle.
    static auto& plans = *new std::map<Key, Plan>;
    const Key key{p.transpose_a,
                  p.transpose_b,
                  p.m,
                  p.n,
                  p.k,
                  int(p.in),
                  int(p.out),
                  int(p.epilogue),
                  alignment(p.a),
                  alignment(p.b),
                  alignment(p.d),
                  alignment(p.bias),
                  alignment(p.aux)};
    auto at = plans.find(key);
    if (at == plans.end()) at = plans.emplace(key, plan_create(p)).first;
    const Plan& plan = at->second;
    if (!plan.found) return false;
    set_pointers(plan.desc, p);
    const float one = 1, beta = p.accumulate ? 1 : 0;
    CUBLAS_CHECK(cublasLtMatmul(library(), plan.desc, &one, p.a, plan.a, p.b, plan.b, &beta, p.d,
                                plan.d, p.d, plan.d, &plan.algo, ws.data, kLibraryBytes,
                                cuda_stream(s)));
    return true;
}

// A product without epilogue: always served.
void product_run(const Product& p, Workspace ws, CudaStream s) {
    if (product_try(p, ws, s)) return;
    CHECK(p.in == CUDA_R_16BF, Exit::Resource, "cuBLASLt has no algorithm for an fp32 product",
          str(p.m, " x ", p.n, " x ", p.k), "", "--dtype bf16 or --device cpu");
    // Seen row-major, d (n x m) is B times A, and their layouts read the other way round.
    const gemm::Operand left{static_cast<const bf16*>(p.b), p.n},
        right{static_cast<const bf16*>(p.a), p.m};
    const gemm::Major left_major = p.transpose_b ? gemm::Major::Depth : gemm::Major::Row;
    const gemm::Major right_major = p.transpose_a ? gemm::Major::Row : gemm::Major::Depth;
    if (p.out == CUDA_R_32F)
        gemm::run(static_cast<float*>(p.d), left, left_major, right, right_major, p.k, p.accumulate,
                  s);
    else
        gemm::run(static_cast<bf16*>(p.d), left, left_major, right, right_major, p.k, p.accumulate,
                  s);
}

// ---- epilogues as kernels, for where the library has none
constexpr int kThreads = 256;

// y[n,o] += b[o]
template <class Elem>
__global__ void __launch_bounds__(kThreads, 4)
    add_bias_kernel(Elem* y, const Elem* __restrict__ b, size_t n, int OC) {
    const size_t i = size_t(blockIdx.x) * kThreads + threadIdx.x;
    if (i >= n) return;
    y[i] = as_elem<Elem>(as_float(y[i]) + as_float(b[i % OC]));
}

template <class Elem>
void add_bias(Elem* y, const Elem* b, int N, int OC, CudaStream s) {
    const size_t n = size_t(N) * OC;
    launch(add_bias_kernel<Elem>, blocks_for(n, kThreads), kThreads, 0, s, y, b, n, OC);
}

// partials[blockIdx.y, o] = sum of dy[n,o] over the rows n of this block: 32 columns a block, eight
// threads a column.
template <class Elem>
__global__ void __launch_bounds__(kThreads, 4)
    bias_gradient_kernel(float* __restrict__ partials, const Elem* __restrict__ dy, int N, int OC) {
    __shared__ float sums[kThreads / 32][32];
    const int o = blockIdx.x * 32 + threadIdx.x % 32, y = threadIdx.x / 32;
    float sum = 0;
    if (o < OC)
        for (int n = blockIdx.y * (kThreads / 32) + y; n < N; n += gridDim.y * (kThreads / 32))
            sum += as_float(dy[size_t(n) * OC + o]);
    sums[y][threadIdx.x % 32] = sum;
    __syncthreads();
    if (y != 0 || o >= OC) return;
    float total = 0;
    for (int i = 0; i < kThreads / 32; i++) total += sums[i][threadIdx.x % 32];
    partials[size_t(blockIdx.y) * OC + o] = total;
}

template <class Elem>
void bias_gradient(float* db, const Elem* dy, int N, int OC, Workspace ws, CudaStream s) {
    const int rows =
        min(ceil_div(N, kThreads / 32), int(min(size_t(128), kLibraryBytes / sizeof(float) / OC)));
    float* partials = static_cast<float*>(ws.data);
    launch(bias_gradient_kernel<Elem>, dim3(ceil_div(OC, 32), rows), kThreads, 0, s, partials, dy,
           N, OC);
    add_partial_sums(db, nullptr, partials, rows, OC, OC, s);
}

// ---- the contract's products
template <class Elem>
Product forward_product(Elem* y, const Elem* x, const Elem* w, int N, int C, int OC) {
    return {w, true, x, false, y, OC, N, C, kDataType<Elem>, kDataType<Elem>, false};
}

template <class Elem>
Product input_product(Elem* dx, const Elem* dy, const Elem* w, int N, int C, int OC) {
    return {w, false, dy, false, dx, C, N, OC, kDataType<Elem>, kDataType<Elem>, false};
}

}  // namespace

size_t matmul_workspace_bytes(int, int, int OC, CudaStream) {
    return kLibraryBytes + ceil_div(size_t(OC), size_t(4)) * 16;
}

template <class Elem>
void matmul_forward(Elem* y, const Elem* x, const Elem* w, const Elem* b, int N, int C, int OC,
                    Workspace ws, CudaStream s) {
    Product p = forward_product(y, x, w, N, C, OC);
    if (b) {
        Product fused = p;
        fused.epilogue = CUBLASLT_EPILOGUE_BIAS;
        fused.bias = const_cast<Elem*>(b);
        if (product_try(fused, ws, s)) return;
    }
    product_run(p, ws, s);
    if (b) add_bias(y, b, N, OC, s);
}

template <class Elem>
void matmul_gelu_forward(Elem* act, Elem* pre, const Elem* x, const Elem* w, const Elem* b, int N,
                         int C, int OC, Workspace ws, CudaStream s) {
    Product p = forward_product(act, x, w, N, C, OC);
    p.bias = const_cast<Elem*>(b);
    p.aux = pre;
    p.epilogue = b && pre ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS
                 : b      ? CUBLASLT_EPILOGUE_GELU_BIAS
                 : pre    ? CUBLASLT_EPILOGUE_GELU_AUX
                          : CUBLASLT_EPILOGUE_GELU;
    if (product_try(p, ws, s)) return;
    Elem* product = pre ? pre : act;
    matmul_forward(product, x, w, b, N, C, OC, ws, s);
    gelu_forward(act, product, size_t(N) * OC, s);
}

template <class Elem>
void matmul_backward_input(Elem* dx, const Elem* dy, const Elem* w, int N, int C, int OC,
                           Workspace ws, CudaStream s) {
    product_run(input_product(dx, dy, w, N, C, OC), ws, s);
}

template <class Elem>
void matmul_backward_input_gelu(Elem* dpre, const Elem* dy, const Elem* w, const Elem* pre, int N,
                                int C, int OC, Workspace ws, CudaStream s) {
    Product p = input_product(dpre, dy, w, N, C, OC);
    p.epilogue = CUBLASLT_EPILOGUE_DGELU;
    p.aux = const_cast<Elem*>(pre);
    if (product_try(p, ws, s)) return;
    matmul_backward_input(dpre, dy, w, N, C, OC, ws, s);
    gelu_backward(dpre, dpre, pre, size_t(N) * C, s);
}

template <class Elem>
void matmul_backward_params(float* dw, float* db, const Elem* dy, const Elem* x, int N, int C,
                            int OC, Workspace ws, CudaStream s) {
    Product p{x, false, dy, true, dw, C, OC, N, kDataType<Elem>, CUDA_R_32F, true};
    if (!db) return product_run(p, ws, s);

    // The epilogue writes the bias gradient, it does not add: so to scratch first, then added.
    workspace_check("matmul", ws, matmul_workspace_bytes(N, C, OC, s));
    float* sums = reinterpret_cast<float*>(static_cast<char*>(ws.data) + kLibraryBytes);
    Product fused = p;
    fused.epilogue = CUBLASLT_EPILOGUE_BGRADB;
    fused.bias = sums;
    if (product_try(fused, ws, s)) return add_partial_sums(db, nullptr, sums, 1, OC, OC, s);
    product_run(p, ws, s);
    bias_gradient(db, dy, N, OC, ws, s);
}

// clang-format off
#define INSTANTIATE(Elem)                                                                          \
    template void matmul_forward(Elem*, const Elem*, const Elem*, const Elem*, int, int, int,      \
                                 Workspace, CudaStream);                                           \
    template void matmul_gelu_forward(Elem*, Elem*, const Elem*, const Elem*, const Elem*, int,    \
                                      int, int, Workspace, CudaStream);                            \
    template void matmul_backward_input(Elem*, const Elem*, const Elem*, int, int, int, Workspace, \
                                        CudaStream);                                               \
    template void matmul_backward_input_gelu(Elem*, const Elem*, const Elem*, const Elem*, int,    \
                                             int, int, Workspace, CudaStream);                     \
    template void matmul_backward_params(float*, float*, const Elem*, const Elem*, int, int, int,  \
                                         Workspace, CudaStream);
// clang-format on
INSTANTIATE(float)
INSTANTIATE(bf16)
