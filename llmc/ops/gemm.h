// llmc/ops/gemm.h: the matrix product under the CPU's linear layers, from a BLAS found at run time.
//   C = op(A) op(B) + beta C,   op(X) = X or X^T, everything row-major
// Bits do not depend on the number of threads: C is cut into tiles by its shape alone, and each
// tile is one call of the library on one thread. They may depend on the library and on its version.
// Which library: oneDNN where the CPU has AVX-512, else OpenBLAS, else the one that is there;
// TRAIN_GPT_BLAS=onednn|openblas overrides. Never by timing, so that bits do not change between
// runs. Proof: gemm_test.cpp.
#pragma once
#include <algorithm>
#include <cstdint>

enum class Op : char { Plain = 'N', Transposed = 'T' };

// One call on the calling thread; meant for the inside of gemm_tiles.
void gemm_block(Op opA, Op opB, int64_t M, int64_t N, int64_t K, const float* A, int64_t lda,
                const float* B, int64_t ldb, float beta, float* C, int64_t ldc);

// Name of the library, loaded on the first call; throws Error where there is none. For example
// "oneDNN (libdnnl.so.2)", "OpenBLAS (libopenblas.so.0, Haswell)".
const char* gemm_library();

struct Tile {
    int64_t row, rows, col, cols;
};

// The size of a tile of an (M, N) matrix: about 256 x 384, which keeps one product's operands in
// the second-level cache; less where that would leave fewer than 16 tiles to share among the
// threads.
inline Tile gemm_tile_size(int64_t M, int64_t N) {
    int64_t rows = 256, cols = 384;
    const auto count = [&] { return ((M + rows - 1) / rows) * ((N + cols - 1) / cols); };
    while (count() < 16 && (rows > 64 || cols > 96)) {
        if (rows > 64 && (rows >= cols || cols <= 96))
            rows /= 2;
        else
            cols /= 2;
    }
    return {0, rows, 0, cols};
}

// Calls body(tile) for every tile, on all threads. Whoever computes a tile may go on to transform
// it while it is in the cache.
template <class Body>
void gemm_tiles(int64_t M, int64_t N, Body body) {
    const Tile size = gemm_tile_size(M, N);
    gemm_library(); // loads it, or throws, outside the parallel region
    const int64_t down = (M + size.rows - 1) / size.rows, across = (N + size.cols - 1) / size.cols;
#pragma omp parallel for schedule(dynamic)
    for (int64_t t = 0; t < down * across; t++) {
        const int64_t row = t % down * size.rows, col = t / down * size.cols;
        body(Tile{row, std::min(size.rows, M - row), col, std::min(size.cols, N - col)});
    }
}

// The whole product, on all threads.
inline void gemm(Op opA, Op opB, int64_t M, int64_t N, int64_t K, const float* A, int64_t lda,
                 const float* B, int64_t ldb, float beta, float* C, int64_t ldc) {
    gemm_tiles(M, N, [=](Tile t) {
        gemm_block(opA, opB, t.rows, t.cols, K, A + (opA == Op::Plain ? t.row * lda : t.row), lda,
                   B + (opB == Op::Plain ? t.col : t.col * ldb), ldb, beta, C + t.row * ldc + t.col,
                   ldc);
    });
}
