// cuBLASLt and NCCL in the simulator. The same calls compile against the real headers.
#include <cublasLt.h>
#include <gtest/gtest.h>
#include <nccl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <functional>
#include <vector>

#include "llmc/core/launch.cuh"

namespace {

// ---- cuBLASLt: every epilogue, in fp32 and bf16, against a plain loop in double

struct LtCase {
    cudaDataType type;
    bool transpose_a, transpose_b;
    unsigned epilogue;
    float beta;
};
constexpr int M = 24, N = 13, K = 17;  // rows of D a multiple of 8, as the aux matrix demands

size_t bytes_of(cudaDataType t) {
    return t == CUDA_R_16BF ? 2 : 4;
}
float rounded(float v, cudaDataType t) {
    return t == CUDA_R_16BF ? float(__nv_bfloat16(v)) : v;
}

// A matrix or vector of one type in device memory, with its values as floats.
struct Array {
    cudaDataType type;
    std::vector<float> values;
    void* p = nullptr;
    Array(int n, cudaDataType type, float seed) : type(type), values(n) {
        for (int i = 0; i < n; i++) values[i] = rounded(std::sin(seed + float(i) * 1.7f), type);
        CUDA_CHECK(cudaMalloc(&p, n * bytes_of(type)));
        std::vector<__nv_bfloat16> small(values.begin(), values.end());
        const void* source =
            type == CUDA_R_16BF ? static_cast<const void*>(small.data()) : values.data();
        CUDA_CHECK(cudaMemcpy(p, source, n * bytes_of(type), cudaMemcpyHostToDevice));
    }
    ~Array() { cudaFree(p); }
    Array(const Array&) = delete;
    std::vector<float> now() const {
        std::vector<__nv_bfloat16> small(values.size());
        std::vector<float> big(values.size());
        void* target = type == CUDA_R_16BF ? static_cast<void*>(small.data()) : big.data();
        CUDA_CHECK(cudaMemcpy(target, p, values.size() * bytes_of(type), cudaMemcpyDeviceToHost));
        if (type == CUDA_R_16BF) big.assign(small.begin(), small.end());
        return big;
    }
};

#define LT_CHECK(call) ASSERT_EQ(call, CUBLAS_STATUS_SUCCESS)

// Sets up descriptors as a trainer does, asks the heuristic, multiplies.
void lt_matmul(const LtCase& c, const Array& A, const Array& B, Array& D, Array& bias, Array& aux) {
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t best;
    const int32_t ta = c.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const int32_t tb = c.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const int64_t aux_ld = M;
    LT_CHECK(cublasLtCreate(&handle));
    LT_CHECK(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    auto set = [&](cublasLtMatmulDescAttributes_t what, const void* value, size_t bytes) {
        ASSERT_EQ(cublasLtMatmulDescSetAttribute(desc, what, value, bytes), CUBLAS_STATUS_SUCCESS);
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof ta);
    set(CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof tb);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, &c.epilogue, sizeof c.epilogue);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias.p, sizeof bias.p);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux.p, sizeof aux.p);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &aux_ld, sizeof aux_ld);
    LT_CHECK(cublasLtMatrixLayoutCreate(&a, c.type, ta ? K : M, ta ? M : K, ta ? K : M));
    LT_CHECK(cublasLtMatrixLayoutCreate(&b, c.type, tb ? N : K, tb ? K : N, tb ? N : K));
    LT_CHECK(cublasLtMatrixLayoutCreate(&d, c.type, M, N, M));
    LT_CHECK(cublasLtMatmulPreferenceCreate(&preference));
    const uint64_t workspace_bytes = 1 << 16;
    LT_CHECK(cublasLtMatmulPreferenceSetAttribute(preference,
                                                  CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                  &workspace_bytes, sizeof workspace_bytes));
    int found = 0;
    LT_CHECK(
        cublasLtMatmulAlgoGetHeuristic(handle, desc, a, b, d, d, preference, 1, &best, &found));
    ASSERT_EQ(found, 1);
    void* workspace = nullptr;
    CUDA_CHECK(cudaMalloc(&workspace, workspace_bytes));
    const float alpha = 0.5f;
    LT_CHECK(cublasLtMatmul(handle, desc, &alpha, A.p, a, B.p, b, &c.beta, D.p, d, D.p, d,
                            &best.algo, workspace, workspace_bytes, nullptr));
    CUDA_CHECK(cudaDeviceSynchronize());
    CUDA_CHECK(cudaFree(workspace));
    cublasLtMatmulPreferenceDestroy(preference);
    for (auto* layout : {a, b, d}) cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulDescDestroy(desc);
    cublasLtDestroy(handle);
}

double gelu(double x) {
    return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}
// The derivative by central differences; the error is h^2 times the third derivative, < 1e-7 here.
double gelu_slope(double x) {
    return (gelu(x + 1e-4) - gelu(x - 1e-4)) / 2e-4;
}

void check_lt(const LtCase& c) {
    Array A(M * K, c.type, 1), B(K * N, c.type, 2), D(M * N, c.type, 3),
        bias(std::max(M, N), c.type, 4), aux(M * N, c.type, 5);
    const std::vector<float> old = D.values;
    lt_matmul(c, A, B, D, bias, aux);
    const std::vector<float> d = D.now(), bias_now = bias.now(), aux_now = aux.now();
    // A sum of K products of magnitude <= 1 in fp32, then one rounding of the result to the type.
    const double unit = c.type == CUDA_R_16BF ? 1.0 / 256 : 1e-7;
    auto close = [&](double got, double want, double terms) {
        return std::fabs(got - want) <= unit * (1 + std::fabs(want)) + 1e-7 * terms;
    };
    std::vector<double> row_sums(M), a_sums(M), b_sums(N);
    auto op_a = [&](int i, int k) {
        return double(A.values[c.transpose_a ? i * K + k : k * M + i]);
    };
    auto op_b = [&](int k, int j) {
        return double(B.values[c.transpose_b ? k * N + j : j * K + k]);
    };
    for (int j = 0; j < N; j++)
        for (int i = 0; i < M; i++) {
            double v = 0;
            for (int k = 0; k < K; k++) v += 0.5 * op_a(i, k) * op_b(k, j);
            v += c.beta * old[j * M + i];
            if (c.epilogue & CUBLASLT_EPILOGUE_BIAS) v += bias.values[i];
            if ((c.epilogue & CUBLASLT_EPILOGUE_GELU_AUX) == CUBLASLT_EPILOGUE_GELU_AUX) {
                EXPECT_TRUE(close(aux_now[j * M + i], v, K)) << "aux " << i << ',' << j;
            }
            if (c.epilogue & CUBLASLT_EPILOGUE_GELU) v = gelu(v);
            if ((c.epilogue & CUBLASLT_EPILOGUE_DGELU) == CUBLASLT_EPILOGUE_DGELU)
                v *= gelu_slope(aux.values[j * M + i]);
            row_sums[i] += v;
            ASSERT_TRUE(close(d[j * M + i], v, 2 * K)) << d[j * M + i] << " is not " << v;
        }
    for (int k = 0; k < K; k++) {
        for (int i = 0; i < M; i++) a_sums[i] += op_a(i, k);
        for (int j = 0; j < N; j++) b_sums[j] += op_b(k, j);
    }
    auto check_bias = [&](const std::vector<double>& sums, double terms) {
        for (size_t i = 0; i < sums.size(); i++)
            EXPECT_TRUE(close(bias_now[i], sums[i], terms)) << bias_now[i] << " is not " << sums[i];
    };
    if (c.epilogue == CUBLASLT_EPILOGUE_DGELU_BGRAD) check_bias(row_sums, 2 * K * N);
    if (c.epilogue == CUBLASLT_EPILOGUE_BGRADA) check_bias(a_sums, K);
    if (c.epilogue == CUBLASLT_EPILOGUE_BGRADB) check_bias(b_sums, K);
}

TEST(sim_cublaslt, every_epilogue_in_both_types) {
    for (cudaDataType type : {CUDA_R_32F, CUDA_R_16BF})
        for (unsigned epilogue :
             {CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_GELU,
              CUBLASLT_EPILOGUE_GELU_BIAS, CUBLASLT_EPILOGUE_GELU_AUX,
              CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DGELU,
              CUBLASLT_EPILOGUE_DGELU_BGRAD, CUBLASLT_EPILOGUE_BGRADA, CUBLASLT_EPILOGUE_BGRADB})
            for (int transposes = 0; transposes < 4; transposes++)
                for (float beta : {0.0f, 1.0f}) {
                    SCOPED_TRACE(testing::Message() << type << " epilogue " << epilogue << " op "
                                                    << transposes << " beta " << beta);
                    check_lt({type, (transposes & 1) != 0, (transposes & 2) != 0, epilogue, beta});
                }
}

// What the manual forbids is refused, as the library would.
TEST(sim_cublaslt, what_the_manual_forbids_is_refused) {
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t best;
    cublasLtHandle_t handle;
    LT_CHECK(cublasLtCreate(&handle));
    LT_CHECK(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    LT_CHECK(cublasLtMatmulPreferenceCreate(&preference));
    LT_CHECK(cublasLtMatrixLayoutCreate(&a, CUDA_R_32F, M, K, M));
    LT_CHECK(cublasLtMatrixLayoutCreate(&b, CUDA_R_32F, K + 1, N, K + 1));
    LT_CHECK(cublasLtMatrixLayoutCreate(&d, CUDA_R_32F, M, N, M));
    int found = 1;
    EXPECT_EQ(
        cublasLtMatmulAlgoGetHeuristic(handle, desc, a, b, d, d, preference, 1, &best, &found),
        CUBLAS_STATUS_NOT_SUPPORTED);  // K does not fit
    EXPECT_EQ(found, 0);
    const int64_t too_wide = 1;
    EXPECT_EQ(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &too_wide, 8),
              CUBLAS_STATUS_INVALID_VALUE);  // an epilogue has 4 bytes
    cublasLtMatrixLayoutDestroy(b);
    LT_CHECK(cublasLtMatrixLayoutCreate(&b, CUDA_R_32F, K, N, K));
    const uint32_t epilogue = CUBLASLT_EPILOGUE_GELU_AUX;
    const int64_t odd_ld = M + 1;
    void* aux = nullptr;
    CUDA_CHECK(cudaMalloc(&aux, 4 * (M + 1) * N));
    LT_CHECK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, 4));
    LT_CHECK(
        cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux, 8));
    LT_CHECK(
        cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &odd_ld, 8));
    EXPECT_EQ(
        cublasLtMatmulAlgoGetHeuristic(handle, desc, a, b, d, d, preference, 1, &best, &found),
        CUBLAS_STATUS_NOT_SUPPORTED);  // "must be divisible by 8"
    CUDA_CHECK(cudaFree(aux));
    cublasLtMatmulPreferenceDestroy(preference);
    for (auto* layout : {a, b, d}) cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulDescDestroy(desc);
    cublasLtDestroy(handle);
}

// ---- NCCL: each rank a process of its own

// Runs body(rank, comm) in `ranks` processes; it returns whether all was well there.
bool over_ranks(int ranks, const std::function<bool(int, ncclComm_t)>& body) {
    ncclUniqueId id;
    if (ncclGetUniqueId(&id) != ncclSuccess) return false;
    std::vector<pid_t> children;
    for (int rank = 0; rank < ranks; rank++) {
        const pid_t child = fork();
        if (child == 0) {
            ncclComm_t comm;
            const bool good = ncclCommInitRank(&comm, ranks, id, rank) == ncclSuccess &&
                              body(rank, comm) && ncclCommDestroy(comm) == ncclSuccess;
            _exit(good ? 0 : 1);
        }
        children.push_back(child);
    }
    bool all = true;
    for (pid_t child : children) {
        int status = 0;
        waitpid(child, &status, 0);
        all &= WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    return all;
}
template <class T>
struct Device {
    T* p = nullptr;
    size_t n;
    explicit Device(const std::vector<T>& host) : n(host.size()) {
        CUDA_CHECK(cudaMalloc(&p, n * sizeof(T)));
        CUDA_CHECK(cudaMemcpy(p, host.data(), n * sizeof(T), cudaMemcpyHostToDevice));
    }
    std::vector<T> host() const {
        std::vector<T> h(n);
        CUDA_CHECK(cudaMemcpy(h.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost));
        return h;
    }
};

// rank r contributes v[i] = base[i] + r, in every type; sums are exact.
template <class T>
bool check_all_reduce(int rank, int ranks, ncclComm_t comm, ncclDataType_t type) {
    const size_t n = 1003;
    std::vector<T> v(n);
    for (size_t i = 0; i < n; i++) v[i] = T(float(i % 50) + float(rank));
    bool good = true;
    for (ncclRedOp_t op : {ncclSum, ncclMax, ncclMin}) {
        Device<T> in(v), out(std::vector<T>(n, T(0.0f)));
        ncclAllReduce(in.p, out.p, n, type, op, comm, nullptr);
        const std::vector<T> got = out.host();
        for (size_t i = 0; i < n; i++) {
            const float base = float(i % 50), last = float(ranks - 1);
            const float want = op == ncclSum   ? float(ranks) * base + last * float(ranks) / 2
                               : op == ncclMax ? base + last
                                               : base;
            good &= float(got[i]) == want;
        }
    }
    return good;
}
TEST(sim_nccl, all_reduce_in_every_type) {
    EXPECT_TRUE(over_ranks(4, [](int rank, ncclComm_t comm) {
        return check_all_reduce<float>(rank, 4, comm, ncclFloat32) &&
               check_all_reduce<double>(rank, 4, comm, ncclFloat64) &&
               check_all_reduce<int64_t>(rank, 4, comm, ncclInt64) &&
               check_all_reduce<int32_t>(rank, 4, comm, ncclInt32) &&
               check_all_reduce<__nv_bfloat16>(rank, 4, comm, ncclBfloat16);
    }));
}
// 64-bit integers keep all their bits: a sum through double would not.
TEST(sim_nccl, int64_sums_are_exact) {
    EXPECT_TRUE(over_ranks(3, [](int rank, ncclComm_t comm) {
        Device<int64_t> v(std::vector<int64_t>(5, (int64_t(1) << 60) + rank));
        ncclAllReduce(v.p, v.p, 5, ncclInt64, ncclSum, comm, nullptr);
        return v.host() == std::vector<int64_t>(5, 3 * (int64_t(1) << 60) + 3);
    }));
}
// More than one slot of staging, so the pieces are tested too.
TEST(sim_nccl, scatter_gather_broadcast_reduce) {
    constexpr int kRanks = 3, n = 300'001;
    EXPECT_TRUE(over_ranks(kRanks, [](int rank, ncclComm_t comm) {
        std::vector<float> all(size_t(n) * kRanks);
        for (size_t i = 0; i < all.size(); i++) all[i] = float(i % 1000) * float(rank + 1);
        Device<float> in(all), mine(std::vector<float>(n, -1.0f)),
            gathered(std::vector<float>(all.size(), -1.0f));
        ncclReduceScatter(in.p, mine.p, n, ncclFloat32, ncclSum, comm, nullptr);
        ncclAllGather(mine.p, gathered.p, n, ncclFloat32, comm, nullptr);
        const std::vector<float> sums = gathered.host();
        bool good = true;
        for (size_t i = 0; i < sums.size(); i++) good &= sums[i] == 6 * float(i % 1000);

        Device<float> sent(std::vector<float>(n, float(rank)));
        ncclBroadcast(sent.p, sent.p, n, ncclFloat32, 2, comm, nullptr);
        good &= sent.host() == std::vector<float>(n, 2.0f);

        Device<float> one(std::vector<float>(7, 1.0f)), root(std::vector<float>(7, -1.0f));
        ncclReduce(one.p, root.p, 7, ncclFloat32, ncclSum, 1, comm, nullptr);
        good &= root.host() == std::vector<float>(7, rank == 1 ? 3.0f : -1.0f);
        return good;
    }));
}
// Each rank sends to the next and receives from the one before, all at once: a ring that deadlocks
// unless the group's transfers progress together.
TEST(sim_nccl, a_ring_of_sends_in_a_group) {
    constexpr int kRanks = 4, n = 100'003;
    EXPECT_TRUE(over_ranks(kRanks, [](int rank, ncclComm_t comm) {
        Device<int> out(std::vector<int>(n, rank)), in(std::vector<int>(n, -1));
        ncclGroupStart();
        ncclSend(out.p, n, ncclInt32, (rank + 1) % kRanks, comm, nullptr);
        ncclRecv(in.p, n, ncclInt32, (rank + kRanks - 1) % kRanks, comm, nullptr);
        ncclGroupEnd();
        return in.host() == std::vector<int>(n, (rank + kRanks - 1) % kRanks);
    }));
}
// Rank 0 issues the collective and then waits for a word from rank 1 by other means; rank 1 sends
// it only after its own part is done. Real NCCL works on meanwhile, so must this.
TEST(sim_nccl, collectives_progress_while_the_host_is_elsewhere) {
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    EXPECT_TRUE(over_ranks(2, [&](int rank, ncclComm_t comm) {
        Device<float> v(std::vector<float>(100, 1.0f));
        ncclAllReduce(v.p, v.p, 100, ncclFloat32, ncclSum, comm, nullptr);
        char word = 'x';
        if (rank == 0) {
            if (read(ready[0], &word, 1) != 1) return false;
        } else {
            CUDA_CHECK(cudaDeviceSynchronize());
            if (write(ready[1], &word, 1) != 1) return false;
        }
        return v.host() == std::vector<float>(100, 2.0f);
    }));
    close(ready[0]);
    close(ready[1]);
}

}  // namespace
