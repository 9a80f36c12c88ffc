// cuBLASLt over the CPU backend's matrix product: the constraints that the manual states, and the
// epilogues. Operands are copied to host memory first: a BLAS may use threads, and those may not
// touch device memory. NVIDIA, cuBLAS 12.6 documentation, section "Using the cuBLASLt API".
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "cublasLt.h"
#include "llmc/ops/gemm.h"
#include "report.h"

struct cublasLtContext {};
struct cublasLtMatmulDescOpaque_t {
    int transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
    unsigned epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    void *bias = nullptr, *aux = nullptr;
    int64_t aux_ld = 0;
    int bias_type = -1, aux_type = -1;  // -1: as D
};
struct cublasLtMatrixLayoutOpaque_t {
    cudaDataType type;
    uint64_t rows, cols;
    int64_t ld;
    int batch = 1;
    int64_t stride = 0;
};
struct cublasLtMatmulPreferenceOpaque_t {
    uint64_t workspace = 0;
    unsigned alignment[4] = {256, 256, 256, 256};  // A, B, C, D: what the caller promises
};

namespace {
using cusim::fail;
using cusim::library_reads;
using cusim::library_writes;

constexpr uint64_t kMagic = 0x6c745f73696dull;
constexpr uint64_t kWorkspace = 64 * 1024;  // what our algorithm asks for, if it may

size_t type_bytes(cudaDataType t) {
    return t == CUDA_R_16BF ? 2 : 4;
}
bool type_known(int t) {
    return t == CUDA_R_16BF || t == CUDA_R_32F;
}
float get(const void* p, cudaDataType t, size_t i) {
    return t == CUDA_R_16BF ? float(static_cast<const __nv_bfloat16*>(p)[i])
                            : static_cast<const float*>(p)[i];
}
void put(void* p, cudaDataType t, size_t i, float v) {
    if (t == CUDA_R_16BF)
        static_cast<__nv_bfloat16*>(p)[i] = v;
    else
        static_cast<float*>(p)[i] = v;
}

constexpr float kRootTwoOverPi = 0.7978845608f, kCubic = 0.044715f;
float gelu(float x) {
    return 0.5f * x * (1 + std::tanh(kRootTwoOverPi * (x + kCubic * x * x * x)));
}
float gelu_derivative(float x) {
    const float t = std::tanh(kRootTwoOverPi * (x + kCubic * x * x * x));
    return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * kRootTwoOverPi * (1 + 3 * kCubic * x * x);
}

// One matrix of a batch in device memory, column-major.
struct Matrix {
    char* p;
    cudaDataType type;
    size_t rows, cols, ld;
    Matrix(const void* base, const cublasLtMatrixLayoutOpaque_t& l, int batch)
        : p(static_cast<char*>(const_cast<void*>(base)) +
            size_t(batch) * size_t(l.stride) * type_bytes(l.type)),
          type(l.type),
          rows(l.rows),
          cols(l.cols),
          ld(size_t(l.ld)) {}
    float at(size_t i, size_t j) const { return get(p, type, j * ld + i); }
    void set(size_t i, size_t j, float v) { put(p, type, j * ld + i, v); }
    std::vector<float> dense() const {
        std::vector<float> copy(rows * cols);
        for (size_t j = 0; j < cols; j++) {
            library_reads(p + j * ld * type_bytes(type), rows * type_bytes(type), "cublasLtMatmul");
            for (size_t i = 0; i < rows; i++) copy[j * rows + i] = at(i, j);
        }
        return copy;
    }
};

struct Matmul {
    cublasLtMatmulDescOpaque_t desc;
    cublasLtMatrixLayoutOpaque_t a, b, c, d;
    const void *A, *B, *C;
    void *D, *workspace;
    size_t workspace_bytes;
    float alpha, beta;

    bool has(unsigned flag) const { return desc.epilogue & flag; }
    cudaDataType bias_type() const {
        return desc.bias_type < 0 ? d.type : cudaDataType(desc.bias_type);
    }
    cudaDataType aux_type() const {
        return desc.aux_type < 0 ? d.type : cudaDataType(desc.aux_type);
    }
    size_t m() const { return d.rows; }
    size_t n() const { return d.cols; }
    size_t k() const { return desc.transpose_a ? a.rows : a.cols; }

    void write_bias(const std::vector<float>& sums) const {
        library_writes(desc.bias, sums.size() * type_bytes(bias_type()), "cublasLtMatmul bias");
        for (size_t i = 0; i < sums.size(); i++) put(desc.bias, bias_type(), i, sums[i]);
    }
    // Sums of op(X) over k, where X has k rows or k columns.
    static std::vector<float> sums_over_k(const std::vector<float>& x, size_t rows, size_t cols,
                                          bool k_is_rows) {
        std::vector<float> sums(k_is_rows ? cols : rows, 0.0f);
        for (size_t j = 0; j < cols; j++)
            for (size_t i = 0; i < rows; i++) sums[k_is_rows ? j : i] += x[j * rows + i];
        return sums;
    }

    void run_one(int batch) const {
        const std::vector<float> x = Matrix(A, a, batch).dense(), y = Matrix(B, b, batch).dense();
        std::vector<float> z(m() * n());
        // Column-major is row-major transposed: z^T = op(B)^T op(A)^T.
        auto op = [](int transpose) { return transpose ? Op::Transposed : Op::Plain; };
        std::vector<float> scratch(gemm_workspace_bytes() / sizeof(float));
        gemm({op(desc.transpose_b), op(desc.transpose_a), int64_t(n()), int64_t(m()), int64_t(k()),
              y.data(), int64_t(b.rows), x.data(), int64_t(a.rows), 0.0f, z.data(), int64_t(m())},
             {scratch.data(), scratch.size() * sizeof(float)});
        for (float& v : z) v *= alpha;
        if (beta != 0) {
            const std::vector<float> old = Matrix(C, c, batch).dense();
            for (size_t i = 0; i < z.size(); i++) z[i] += beta * old[i];
        }
        if (has(CUBLASLT_EPILOGUE_BGRADA))
            write_bias(sums_over_k(x, a.rows, a.cols, desc.transpose_a));
        if (has(CUBLASLT_EPILOGUE_BGRADB))
            write_bias(sums_over_k(y, b.rows, b.cols, !desc.transpose_b));
        finish(z, batch);
    }

    // What the epilogue makes of the product, column by column.
    void finish(const std::vector<float>& z, int batch) const {
        Matrix out(D, d, batch);
        const bool aux_out = has(CUBLASLT_EPILOGUE_GELU) && has(128);
        const bool aux_in = has(64);
        std::vector<float> column_sums(m(), 0.0f);
        if (has(CUBLASLT_EPILOGUE_BIAS))
            library_reads(desc.bias, m() * type_bytes(bias_type()), "cublasLtMatmul bias");
        for (size_t j = 0; j < n(); j++) {
            char* aux =
                static_cast<char*>(desc.aux) + j * size_t(desc.aux_ld) * type_bytes(aux_type());
            if (aux_in) library_reads(aux, m() * type_bytes(aux_type()), "cublasLtMatmul aux");
            if (aux_out) library_writes(aux, m() * type_bytes(aux_type()), "cublasLtMatmul aux");
            library_writes(out.p + j * out.ld * type_bytes(out.type), m() * type_bytes(out.type),
                           "cublasLtMatmul");
            for (size_t i = 0; i < m(); i++) {
                float v = z[j * m() + i];
                if (has(CUBLASLT_EPILOGUE_BIAS)) v += get(desc.bias, bias_type(), i);
                if (aux_out) put(aux, aux_type(), i, v);
                if (has(CUBLASLT_EPILOGUE_GELU)) v = gelu(v);
                if (aux_in) v *= gelu_derivative(get(aux, aux_type(), i));
                column_sums[i] += v;
                out.set(i, j, v);
            }
        }
        if (has(16)) write_bias(column_sums);
    }

    void run() const {
        if (workspace_bytes > 0) {  // a library may scribble over all it was given
            library_writes(workspace, workspace_bytes, "cublasLtMatmul workspace");
            cusim::fill_bytes(workspace, 0xff, workspace_bytes);
        }
        for (int z = 0; z < d.batch; z++) run_one(z);
    }
};

bool shapes_fit(const cublasLtMatmulDescOpaque_t& t, const cublasLtMatrixLayoutOpaque_t& a,
                const cublasLtMatrixLayoutOpaque_t& b, const cublasLtMatrixLayoutOpaque_t& c,
                const cublasLtMatrixLayoutOpaque_t& d) {
    const auto op_rows = [](auto& l, int transpose) { return transpose ? l.cols : l.rows; };
    const auto op_cols = [](auto& l, int transpose) { return transpose ? l.rows : l.cols; };
    for (const auto* l : {&a, &b, &c, &d})
        if (!type_known(l->type) || l->ld < int64_t(l->rows) || l->batch != d.batch) return false;
    return op_rows(a, t.transpose_a) == d.rows && op_cols(b, t.transpose_b) == d.cols &&
           op_cols(a, t.transpose_a) == op_rows(b, t.transpose_b) && c.rows == d.rows &&
           c.cols == d.cols && a.type == b.type;
}
// "Must be divisible by 8 and be no less than the number of rows in the output matrix"; 16 bytes.
bool epilogue_fits(const cublasLtMatmulDescOpaque_t& t, const cublasLtMatrixLayoutOpaque_t& d) {
    const bool aux = t.epilogue & 128;
    const bool bias = t.epilogue & (4 | 16 | 256 | 512);
    if (aux && (t.aux_ld % 8 != 0 || t.aux_ld < int64_t(d.rows) || !t.aux ||
                reinterpret_cast<uintptr_t>(t.aux) % 16 != 0))
        return false;
    return !bias || (t.bias && reinterpret_cast<uintptr_t>(t.bias) % 16 == 0);
}

// Copies an attribute of exactly the field's size.
template <class Field>
cublasStatus_t set(Field& field, const void* value, size_t bytes) {
    if (!value || bytes != sizeof field) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&field, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

const char* cublasGetStatusName(cublasStatus_t status) {
    switch (status) {
        case CUBLAS_STATUS_SUCCESS:
            return "CUBLAS_STATUS_SUCCESS";
        case CUBLAS_STATUS_NOT_INITIALIZED:
            return "CUBLAS_STATUS_NOT_INITIALIZED";
        case CUBLAS_STATUS_INVALID_VALUE:
            return "CUBLAS_STATUS_INVALID_VALUE";
        case CUBLAS_STATUS_EXECUTION_FAILED:
            return "CUBLAS_STATUS_EXECUTION_FAILED";
        case CUBLAS_STATUS_NOT_SUPPORTED:
            return "CUBLAS_STATUS_NOT_SUPPORTED";
    }
    return "unknown cuBLAS status";
}
const char* cublasGetStatusString(cublasStatus_t status) {
    return cublasGetStatusName(status);
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
    *handle = new cublasLtContext;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}
size_t cublasLtGetVersion() {
    return 130000;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t,
                                        cudaDataType scale) {
    if (scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
    *desc = new cublasLtMatmulDescOpaque_t;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
    delete desc;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t t,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
    switch (attribute) {
        case CUBLASLT_MATMUL_DESC_TRANSA:
            return set(t->transpose_a, value, bytes);
        case CUBLASLT_MATMUL_DESC_TRANSB:
            return set(t->transpose_b, value, bytes);
        case CUBLASLT_MATMUL_DESC_EPILOGUE:
            return set(t->epilogue, value, bytes);
        case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
            return set(t->bias, value, bytes);
        case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
            return set(t->aux, value, bytes);
        case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
            return set(t->aux_ld, value, bytes);
        case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE:
            return set(t->aux_type, value, bytes);
        case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
            return set(t->bias_type, value, bytes);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld) {
    *layout = new cublasLtMatrixLayoutOpaque_t{type, rows, cols, ld};
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
    delete layout;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, size_t bytes) {
    return attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT ? set(layout->batch, value, bytes)
                                                           : set(layout->stride, value, bytes);
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
    *preference = new cublasLtMatmulPreferenceOpaque_t;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
    delete preference;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
    if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
        return set(preference->workspace, value, bytes);
    const int matrix = attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
    return set(preference->alignment[matrix], value, bytes);
}

// One algorithm. Like the real ones it relies on the promised alignments and on its workspace.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* found) {
    *found = 0;
    if (requested < 1) return CUBLAS_STATUS_INVALID_VALUE;
    if (!shapes_fit(*desc, *a, *b, *c, *d) || !epilogue_fits(*desc, *d))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    results[0] = {};
    results[0].workspaceSize = std::min(preference->workspace, kWorkspace);
    results[0].algo.data[0] = kMagic;
    results[0].algo.data[1] = results[0].workspaceSize;
    for (int i = 0; i < 4; i++) results[0].algo.data[2 + i] = preference->alignment[i];
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha,
                              const void* A, cublasLtMatrixLayout_t a, const void* B,
                              cublasLtMatrixLayout_t b, const void* beta, const void* C,
                              cublasLtMatrixLayout_t c, void* D, cublasLtMatrixLayout_t d,
                              const cublasLtMatmulAlgo_t* algo, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!shapes_fit(*desc, *a, *b, *c, *d)) return CUBLAS_STATUS_INVALID_VALUE;
    if (!epilogue_fits(*desc, *d)) return CUBLAS_STATUS_NOT_SUPPORTED;
    size_t used = 0;
    if (algo) {
        if (algo->data[0] != kMagic)
            fail("cublasLtMatmul: the algorithm is not a heuristic's result");
        used = algo->data[1];
        if (workspace_bytes < used) return CUBLAS_STATUS_INVALID_VALUE;
        const void* pointers[] = {A, B, C, D};
        for (int i = 0; i < 4; i++)
            if (reinterpret_cast<uintptr_t>(pointers[i]) % algo->data[2 + i])
                fail(
                    "cublasLtMatmul: matrix %c (%p) is not aligned to the %d bytes promised to the "
                    "heuristic (CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_%c_BYTES, 256 by default)",
                    "ABCD"[i], pointers[i], int(algo->data[2 + i]), "ABCD"[i]);
    }
    const Matmul work{*desc,
                      *a,
                      *b,
                      *c,
                      *d,
                      A,
                      B,
                      C,
                      D,
                      workspace,
                      used,
                      *static_cast<const float*>(alpha),
                      *static_cast<const float*>(beta)};
    cusim::enqueue_work(stream, "cublasLtMatmul", [work] { work.run(); });
    return CUBLAS_STATUS_SUCCESS;
}
