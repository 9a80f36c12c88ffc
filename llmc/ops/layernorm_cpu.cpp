// LayerNorm on the CPU: a row stays in the first-level cache between its passes. Bits do not depend
// on the number of threads: dw and db are summed over blocks of rows that depend on N alone, and
// the blocks' sums are added in order.
#include "llmc/ops/layernorm.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdint>

#include "llmc/core/phase.h"
#include "llmc/ops/row_blocks.h"

// y = (x - mean) * rstd * w + b for one row. The variance is summed from the deviations, which
// loses nothing when the mean is large.
static void normalise_row(float* y, float* mean, float* rstd, const float* x, const float* w,
                          const float* b, int C, float eps) {
    float sum = 0.f, squares = 0.f;
#pragma omp simd reduction(+ : sum)
    for (int c = 0; c < C; c++) sum += x[c];
    const float m = sum / float(C);
#pragma omp simd reduction(+ : squares)
    for (int c = 0; c < C; c++) squares += (x[c] - m) * (x[c] - m);
    const float s = 1.f / std::sqrt(squares / float(C) + eps);
#pragma omp simd
    for (int c = 0; c < C; c++) y[c] = (x[c] - m) * s * w[c] + b[c];
    *mean = m;
    *rstd = s;
}

void layernorm_forward(float* y, float* mean, float* rstd, const float* x, const float* w,
                       const float* b, int N, int C, float eps, CpuStream) {
    const PhaseTimer timer(Phase::Other);
#pragma omp parallel for schedule(static)
    for (int n = 0; n < N; n++) {
        const int64_t row = int64_t(n) * C;
        normalise_row(y + row, mean + n, rstd + n, x + row, w, b, C, eps);
    }
}

void residual_layernorm_forward(float* residual, float* y, float* mean, float* rstd, const float* x,
                                const float* branch, const float* w, const float* b, int N, int C,
                                float eps, CpuStream) {
    const PhaseTimer timer(Phase::Other);
#pragma omp parallel for schedule(static)
    for (int n = 0; n < N; n++) {
        const int64_t row = int64_t(n) * C;
        for (int c = 0; c < C; c++) residual[row + c] = x[row + c] + branch[row + c];
        normalise_row(y + row, mean + n, rstd + n, residual + row, w, b, C, eps);
    }
}

// ---- backward
size_t layernorm_backward_workspace_bytes(int N, int C, CpuStream) {
    return size_t(row_blocks(N)) * 2 * size_t(C) * sizeof(float);
}

// One row: dx = (or +=) rstd * (g - mean(g) - xhat * mean(g * xhat)), and this row's share of dw,
// db.
template <bool kAdd>
static void backward_row(float* dx, float* dw, float* db, const float* dy, const float* x,
                         const float* w, float mean, float rstd, int C) {
    float sum_g = 0.f, sum_g_xhat = 0.f;
#pragma omp simd reduction(+ : sum_g, sum_g_xhat)
    for (int c = 0; c < C; c++) {
        const float xhat = (x[c] - mean) * rstd, g = dy[c] * w[c];
        dw[c] += dy[c] * xhat;
        db[c] += dy[c];
        sum_g += g;
        sum_g_xhat += g * xhat;
    }
    const float mean_g = sum_g / float(C), mean_g_xhat = sum_g_xhat / float(C);
#pragma omp simd
    for (int c = 0; c < C; c++) {
        const float xhat = (x[c] - mean) * rstd, g = dy[c] * w[c];
        const float d = rstd * (g - mean_g - xhat * mean_g_xhat);
        dx[c] = kAdd ? dx[c] + d : d;
    }
}

template <bool kAdd>
static void backward_rows(float* dx, float* dw, float* db, const float* dy, const float* x,
                          const float* w, const float* mean, const float* rstd, int N, int C,
                          Workspace ws) {
    const int rows = rows_in_block(N), blocks = row_blocks(N);
    assert(ws.bytes >= layernorm_backward_workspace_bytes(N, C, CpuStream{}));
    float* const partial = static_cast<float*>(ws.data);  // (blocks, 2, C)
#pragma omp parallel
    {
#pragma omp for schedule(static)
        for (int k = 0; k < blocks; k++) {
            float* const mine = partial + int64_t(k) * 2 * C;
            std::fill_n(mine, 2 * int64_t(C), 0.f);
            for (int n = k * rows; n < std::min(N, (k + 1) * rows); n++) {
                const int64_t row = int64_t(n) * C;
                backward_row<kAdd>(dx + row, mine, mine + C, dy + row, x + row, w, mean[n], rstd[n],
                                   C);
            }
        }
#pragma omp for schedule(static)
        for (int c = 0; c < C; c++) {
            float sum_w = 0.f, sum_b = 0.f;
            for (int k = 0; k < blocks; k++) {
                sum_w += partial[int64_t(k) * 2 * C + c];
                sum_b += partial[(int64_t(k) * 2 + 1) * C + c];
            }
            dw[c] += sum_w;
            db[c] += sum_b;
        }
    }
}

void layernorm_backward(float* dx, float* dw, float* db, const float* dy, const float* x,
                        const float* w, const float* mean, const float* rstd, int N, int C,
                        Workspace ws, CpuStream) {
    const PhaseTimer timer(Phase::Other);
    backward_rows<false>(dx, dw, db, dy, x, w, mean, rstd, N, C, ws);
}
void residual_layernorm_backward(float* dresidual, float* dw, float* db, const float* dy,
                                 const float* residual, const float* w, const float* mean,
                                 const float* rstd, int N, int C, Workspace ws, CpuStream) {
    const PhaseTimer timer(Phase::Other);
    backward_rows<true>(dresidual, dw, db, dy, residual, w, mean, rstd, N, C, ws);
}
