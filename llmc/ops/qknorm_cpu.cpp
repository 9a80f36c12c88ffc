// The norm of query and key heads on the CPU. Bits do not depend on the number of threads: the
// weights' gradients are summed over blocks of rows that depend on N alone, and the blocks' sums
// are added in order.
#include <algorithm>
#include <cassert>
#include <cstdint>

#include "llmc/core/phase.h"
#include "llmc/ops/qknorm.h"
#include "llmc/ops/rmsnorm_row.h"
#include "llmc/ops/row_blocks.h"

void qknorm_forward(float* qkv, float* qk, float* rstd, const float* qw, const float* kw, int N,
                    int H, int KV, int HS, float eps, CpuStream) {
    const PhaseTimer timer(Phase::Attention);
    const int heads = H + KV, row = (H + 2 * KV) * HS;
#pragma omp parallel for schedule(static)
    for (int n = 0; n < N; n++) {
        float* const x = qkv + int64_t(n) * row;
        float* const kept = qk + int64_t(n) * heads * HS;
        std::copy_n(x, heads * HS, kept);
        for (int h = 0; h < heads; h++)
            rstd[int64_t(n) * heads + h] =
                rmsnorm_row(x + h * HS, kept + h * HS, h < H ? qw : kw, HS, eps);
    }
}

size_t qknorm_backward_workspace_bytes(int N, int, int, int HS, CpuStream) {
    return size_t(row_blocks(N)) * 2 * size_t(HS) * sizeof(float);
}

void qknorm_backward(float* dqkv, float* dqw, float* dkw, const float* qk, const float* qw,
                     const float* kw, const float* rstd, int N, int H, int KV, int HS, Workspace ws,
                     CpuStream s) {
    const PhaseTimer timer(Phase::Attention);
    const int heads = H + KV, row = (H + 2 * KV) * HS;
    const int rows = rows_in_block(N), blocks = row_blocks(N);
    assert(ws.bytes >= qknorm_backward_workspace_bytes(N, H, KV, HS, s));
    (void)s;
    float* const partial = static_cast<float*>(ws.data);  // (blocks, 2, HS): dqw, dkw
#pragma omp parallel
    {
#pragma omp for schedule(static)
        for (int k = 0; k < blocks; k++) {
            float* const mine = partial + int64_t(k) * 2 * HS;
            std::fill_n(mine, 2 * HS, 0.f);
            for (int n = k * rows; n < std::min(N, (k + 1) * rows); n++)
                for (int h = 0; h < heads; h++) {
                    float* const d = dqkv + int64_t(n) * row + h * HS;
                    const int64_t head = int64_t(n) * heads + h;
                    rmsnorm_backward_row<false>(d, h < H ? mine : mine + HS, d, qk + head * HS,
                                                h < H ? qw : kw, rstd[head], HS);
                }
        }
#pragma omp for schedule(static)
        for (int c = 0; c < 2 * HS; c++) {
            float sum = 0.f;
            for (int k = 0; k < blocks; k++) sum += partial[int64_t(k) * 2 * HS + c];
            (c < HS ? dqw[c] : dkw[c - HS]) += sum;
        }
    }
}
