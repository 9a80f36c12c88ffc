// llmc/ops/gemm.h: the matrix product under the CPU's linear layers.
//   C (M, N) = op(A) (M, K) op(B) (K, N) + beta C
// op(X) = X or X^T, beta is 0 or 1, everything is row-major.
// An element of C is summed over equal blocks of at most 256 k, in order inside a block and from
// block to block, by fused multiply-adds. So its bits depend on its row of A, its column of B and K
// alone: not on M, N, the place of the element, the number of threads, or the width of the
// machine's vectors (as long as it has fused multiply-adds). A BLAS of the machine may take its
// place: TRAIN_GPT_BLAS=onednn|openblas. Then bits are what that library makes of them. Proof:
// gemm_test.cpp.
#pragma once
#include <functional>

#include "llmc/core/backend.h"
#include "llmc/ops/blas.h"

struct Gemm {
    Op opA, opB;
    int64_t M, N, K;
    const float* A;
    int64_t lda;
    const float* B;
    int64_t ldb;
    float beta;
    float* C;
    int64_t ldc;
};

// A piece of C.
struct Tile {
    int64_t row, rows, col, cols;
};

// What computes the products: "own (512-bit vectors)", or the name of the BLAS that was asked for.
// Throws Error where that one is not there.
const char* gemm_library();

// Scratch for the threads there are, to copy operands into the order in which they are used.
size_t gemm_workspace_bytes();

// finish(tile) is called once for every piece of C, on the thread that computed it, as soon as it
// is complete and still in the cache: the place to add a bias or apply an activation.
void gemm(const Gemm& g, Workspace ws, const std::function<void(Tile)>& finish = nullptr);
