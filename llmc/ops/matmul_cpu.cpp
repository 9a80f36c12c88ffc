// Linear layers on the CPU: products by tiles (gemm.h), and the thread that computed a tile adds
// the bias and applies GELU while the tile is in its cache. Bits do not depend on the number of
// threads, and a row's result not on the other rows.
#include "llmc/ops/matmul.h"

#include <algorithm>

#include "llmc/core/phase.h"
#include "llmc/ops/gemm.h"
#include "llmc/ops/vector_math.h"

size_t matmul_workspace_bytes(int, int, int, CpuStream) {
    return gemm_workspace_bytes();
}

// y = x w^T
static Gemm forward(float* y, const float* x, const float* w, int N, int C, int OC) {
    return {Op::Plain, Op::Transposed, N, OC, C, x, C, w, C, 0.f, y, OC};
}
// dx = dy w
static Gemm backward_input(float* dx, const float* dy, const float* w, int N, int C, int OC) {
    return {Op::Plain, Op::Plain, N, C, OC, dy, OC, w, C, 0.f, dx, C};
}

void matmul_forward(float* y, const float* x, const float* w, const float* b, int N, int C, int OC,
                    Workspace ws, CpuStream) {
    const PhaseTimer timer(Phase::MatmulForward);
    const auto add = [](Vec sum, Vec bias) { return sum + bias; };
    gemm(forward(y, x, w, N, C, OC), ws, [=](Tile t) {
        for (int64_t n = t.row; b && n < t.row + t.rows; n++) {
            float* const row = y + n * OC + t.col;
            vec_map(t.cols, row, add, row, b + t.col);
        }
    });
}

void matmul_gelu_forward(float* act, float* pre, const float* x, const float* w, const float* b,
                         int N, int C, int OC, Workspace ws, CpuStream) {
    const PhaseTimer timer(Phase::MatmulForward);
    const auto add = [](Vec sum, Vec bias) { return sum + bias; };
    float* const product = pre ? pre : act;
    gemm(forward(product, x, w, N, C, OC), ws, [=](Tile t) {
        for (int64_t n = t.row; n < t.row + t.rows; n++) {
            float* const row = product + n * OC + t.col;
            if (b) vec_map(t.cols, row, add, row, b + t.col);
            vec_map(t.cols, act + n * OC + t.col, vec_gelu, row);
        }
    });
}

void matmul_backward_input(float* dx, const float* dy, const float* w, int N, int C, int OC,
                           Workspace ws, CpuStream) {
    const PhaseTimer timer(Phase::MatmulBackward);
    gemm(backward_input(dx, dy, w, N, C, OC), ws);
}

void matmul_backward_input_gelu(float* dpre, const float* dy, const float* w, const float* pre,
                                int N, int C, int OC, Workspace ws, CpuStream) {
    const PhaseTimer timer(Phase::MatmulBackward);
    const auto chain = [](Vec d, Vec x) { return d * vec_gelu_derivative(x); };
    gemm(backward_input(dpre, dy, w, N, C, OC), ws, [=](Tile t) {
        for (int64_t n = t.row; n < t.row + t.rows; n++) {
            float* const row = dpre + n * C + t.col;
            vec_map(t.cols, row, chain, row, pre + n * C + t.col);
        }
    });
}

// db[o] += sum_n dy[n,o]: threads share the columns, and each sums its own by groups of rows, so
// that rounding errors do not grow with N.
static void add_column_sums(float* db, const float* dy, int N, int OC) {
    constexpr int kColumns = 64, kRows = 32;
    const auto add = [](Vec a, Vec b) { return a + b; };
#pragma omp parallel for schedule(static) if (int64_t(N) * OC > 16384)
    for (int o = 0; o < OC; o += kColumns) {
        const int columns = std::min(kColumns, OC - o);
        float total[kColumns] = {};
        for (int n0 = 0; n0 < N; n0 += kRows) {
            float group[kColumns] = {};
            for (int n = n0; n < std::min(N, n0 + kRows); n++)
                vec_map(columns, group, add, group, dy + int64_t(n) * OC + o);
            vec_map(columns, total, add, total, group);
        }
        vec_map(columns, db + o, add, db + o, total);
    }
}

void matmul_backward_params(float* dw, float* db, const float* dy, const float* x, int N, int C,
                            int OC, Workspace ws, CpuStream) {
    const PhaseTimer timer(Phase::MatmulBackward);
    gemm({Op::Transposed, Op::Plain, OC, C, N, dy, OC, x, C, 1.f, dw, C}, ws);
    if (db) add_column_sums(db, dy, N, OC);
}
