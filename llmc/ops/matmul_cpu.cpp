// Linear layers on the CPU: a BLAS by tiles (gemm.h), and the thread that computed a tile adds the
// bias and applies GELU while the tile is in its cache. Bits do not depend on the number of
// threads.
#include <cassert>

#include "llmc/ops/gemm.h"
#include "llmc/ops/matmul.h"
#include "llmc/ops/vector_math.h"

size_t matmul_workspace_bytes(int, int, int, CpuStream) {
    return 0;
}

// y = x w^T on one tile of y (N, OC).
static void forward_tile(float* y, const float* x, const float* w, int C, int OC, Tile t) {
    gemm_block(Op::Plain, Op::Transposed, t.rows, t.cols, C, x + t.row * C, C, w + t.col * C, C,
               0.f, y + t.row * OC + t.col, OC);
}

void matmul_forward(float* y, const float* x, const float* w, const float* b, int N, int C, int OC,
                    Workspace, CpuStream) {
    gemm_tiles(N, OC, [=](Tile t) {
        forward_tile(y, x, w, C, OC, t);
        if (!b) return;
        for (int64_t n = t.row; n < t.row + t.rows; n++) {
            float* const row = y + n * OC;
#pragma omp simd
            for (int64_t o = t.col; o < t.col + t.cols; o++) row[o] += b[o];
        }
    });
}

void matmul_gelu_forward(float* act, float* pre, const float* x, const float* w, const float* b,
                         int N, int C, int OC, Workspace, CpuStream) {
    float* const product = pre ? pre : act;
    gemm_tiles(N, OC, [=](Tile t) {
        forward_tile(product, x, w, C, OC, t);
        for (int64_t n = t.row; n < t.row + t.rows; n++) {
            float *const sum = product + n * OC, *const out = act + n * OC;
#pragma omp simd
            for (int64_t o = t.col; o < t.col + t.cols; o++) {
                const float z = b ? sum[o] + b[o] : sum[o];
                sum[o] = z;
                out[o] = gelu(z);
            }
        }
    });
}

void matmul_backward_input(float* dx, const float* dy, const float* w, int N, int C, int OC,
                           Workspace, CpuStream) {
    gemm(Op::Plain, Op::Plain, N, C, OC, dy, OC, w, C, 0.f, dx, C);
}

void matmul_backward_input_gelu(float* dpre, const float* dy, const float* w, const float* pre,
                                int N, int C, int OC, Workspace, CpuStream) {
    gemm_tiles(N, C, [=](Tile t) {
        gemm_block(Op::Plain, Op::Plain, t.rows, t.cols, OC, dy + t.row * OC, OC, w + t.col, C, 0.f,
                   dpre + t.row * C + t.col, C);
        for (int64_t n = t.row; n < t.row + t.rows; n++) {
#pragma omp simd
            for (int64_t c = t.col; c < t.col + t.cols; c++)
                dpre[n * C + c] *= gelu_derivative(pre[n * C + c]);
        }
    });
}

// db[o] += sum_n dy[n,o]: threads share the columns, and each sums its own by groups of rows, so
// that rounding errors do not grow with N.
static void add_column_sums(float* db, const float* dy, int N, int OC) {
    constexpr int kColumns = 64, kRows = 32;
#pragma omp parallel for schedule(static)
    for (int o0 = 0; o0 < OC; o0 += kColumns) {
        const int columns = std::min(kColumns, OC - o0);
        float total[kColumns] = {};
        for (int n0 = 0; n0 < N; n0 += kRows) {
            float group[kColumns] = {};
            for (int n = n0; n < std::min(N, n0 + kRows); n++) {
                const float* row = dy + int64_t(n) * OC + o0;
                for (int o = 0; o < columns; o++) group[o] += row[o];
            }
            for (int o = 0; o < columns; o++) total[o] += group[o];
        }
        for (int o = 0; o < columns; o++) db[o0 + o] += total[o];
    }
}

void matmul_backward_params(float* dw, float* db, const float* dy, const float* x, int N, int C,
                            int OC, Workspace, CpuStream) {
    gemm(Op::Transposed, Op::Plain, OC, C, N, dy, OC, x, C, 1.f, dw, C);
    if (db) add_column_sums(db, dy, N, OC);
}
