// RMSNorm on the CPU. Bits do not depend on the number of threads: dw is summed over blocks of rows
// that depend on N alone, and the blocks' sums are added in order.
#include "llmc/ops/rmsnorm.h"

#include <algorithm>
#include <cassert>
#include <cstdint>

#include "llmc/core/phase.h"
#include "llmc/ops/rmsnorm_row.h"
#include "llmc/ops/row_blocks.h"

void rmsnorm_forward(float* y, float* rstd, const float* x, const float* w, int N, int C, float eps,
                     CpuStream) {
    const PhaseTimer timer(Phase::Other);
#pragma omp parallel for schedule(static)
    for (int n = 0; n < N; n++)
        rstd[n] = rmsnorm_row(y + int64_t(n) * C, x + int64_t(n) * C, w, C, eps);
}

void residual_rmsnorm_forward(float* residual, float* y, float* rstd, const float* x,
                              const float* branch, const float* w, int N, int C, float eps,
                              CpuStream) {
    const PhaseTimer timer(Phase::Other);
#pragma omp parallel for schedule(static)
    for (int n = 0; n < N; n++) {
        const int64_t row = int64_t(n) * C;
        for (int c = 0; c < C; c++) residual[row + c] = x[row + c] + branch[row + c];
        rstd[n] = rmsnorm_row(y + row, residual + row, w, C, eps);
    }
}

// ---- backward
size_t rmsnorm_backward_workspace_bytes(int N, int C, CpuStream) {
    return size_t(row_blocks(N)) * size_t(C) * sizeof(float);
}

template <bool kAdd>
static void backward_rows(float* dx, float* dw, const float* dy, const float* x, const float* w,
                          const float* rstd, int N, int C, Workspace ws) {
    const int rows = rows_in_block(N), blocks = row_blocks(N);
    assert(ws.bytes >= rmsnorm_backward_workspace_bytes(N, C, CpuStream{}));
    float* const partial = static_cast<float*>(ws.data);  // (blocks, C)
#pragma omp parallel
    {
#pragma omp for schedule(static)
        for (int k = 0; k < blocks; k++) {
            float* const mine = partial + int64_t(k) * C;
            std::fill_n(mine, C, 0.f);
            for (int n = k * rows; n < std::min(N, (k + 1) * rows); n++) {
                const int64_t row = int64_t(n) * C;
                rmsnorm_backward_row<kAdd>(dx + row, mine, dy + row, x + row, w, rstd[n], C);
            }
        }
#pragma omp for schedule(static)
        for (int c = 0; c < C; c++) {
            float sum = 0.f;
            for (int k = 0; k < blocks; k++) sum += partial[int64_t(k) * C + c];
            dw[c] += sum;
        }
    }
}

void rmsnorm_backward(float* dx, float* dw, const float* dy, const float* x, const float* w,
                      const float* rstd, int N, int C, Workspace ws, CpuStream) {
    const PhaseTimer timer(Phase::Other);
    backward_rows<false>(dx, dw, dy, x, w, rstd, N, C, ws);
}
void residual_rmsnorm_backward(float* dresidual, float* dw, const float* dy, const float* residual,
                               const float* w, const float* rstd, int N, int C, Workspace ws,
                               CpuStream) {
    const PhaseTimer timer(Phase::Other);
    backward_rows<true>(dresidual, dw, dy, residual, w, rstd, N, C, ws);
}
