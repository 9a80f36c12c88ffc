// Embedding on the CPU. Backward cuts the columns among the threads and lets each walk all tokens
// in order, so sums have the same bits for any number of threads and no two threads share a word.
#include "llmc/ops/embedding.h"

#include <algorithm>

#include "llmc/core/phase.h"

void embedding_forward(float* x, const int* tokens, const float* wte, const float* wpe, int B,
                       int T, int C, CpuStream) {
    const PhaseTimer timer(Phase::Other);
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < int64_t(B) * T; n++) {
        float* to = x + n * C;
        const float* token = wte + int64_t(tokens[n]) * C;
        if (wpe) {
            const float* position = wpe + n % T * C;
            for (int c = 0; c < C; c++) to[c] = token[c] + position[c];
        } else {
            std::copy_n(token, C, to);
        }
    }
}

size_t embedding_backward_workspace_bytes(int, int, int, int, CpuStream) {
    return 0;
}

void embedding_backward(float* dwte, float* dwpe, const float* dx, const int* tokens, int B, int T,
                        int C, int, Workspace, CpuStream) {
    const PhaseTimer timer(Phase::Other);
    constexpr int kColumns = 32;  // two cache lines
#pragma omp parallel for schedule(static)
    for (int c0 = 0; c0 < C; c0 += kColumns) {
        const int columns = std::min(kColumns, C - c0);
        for (int64_t n = 0; n < int64_t(B) * T; n++) {
            const float* from = dx + n * C + c0;
            float* token = dwte + int64_t(tokens[n]) * C + c0;
            for (int c = 0; c < columns; c++) token[c] += from[c];
            if (!dwpe) continue;
            float* position = dwpe + n % T * C + c0;
            for (int c = 0; c < columns; c++) position[c] += from[c];
        }
    }
}
