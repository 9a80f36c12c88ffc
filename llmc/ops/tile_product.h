// llmc/ops/tile_product.h: the inner step of every matrix product on the CPU, linear layers and
// attention.
//
// A few rows by a few vectors of C are held in registers while k runs: each vector of B that is
// loaded serves all rows, each element of A is broadcast and serves all vectors. Every element of C
// is
//   C[i,j] (+)= fma(A[i,K-1], B[K-1,j], ... fma(A[i,0], B[0,j], 0))
// in this order, so its bits depend on the row of A, the column of B and K alone: not on where the
// element lies, how wide the vectors are, or who computes it.
// Proof: gemm_test.cpp.
#pragma once
#include <algorithm>
#include <array>
#include <utility>

#include "llmc/core/simd.h"

// An operand read one element at a time: element (i, k) is data[i * row + k * col].
struct Strided {
    const float* data;
    int64_t row, col;
};

// C (kRows, kVectors * kLanes) = A (kRows, K) B (K, kVectors * kLanes), or += with add.
template <int kRows, int kVectors>
void tile_step(int K, Strided A, const float* B, int64_t ldb, float* C, int64_t ldc, bool add) {
    Vec sum[kRows][kVectors];
    for (auto& row : sum)
        for (Vec& v : row) v = Vec{};
    // C is needed at the end. It travels to the second-level cache meanwhile, and to the first just
    // in time: earlier, A and B would push it out again.
    // Panels of B may come from the second-level cache, a few k ahead of their use.
    constexpr int kInTime = 16, kAhead = 8;
    const auto fetch = [=]<int kLevel>(std::integral_constant<int, kLevel>) {
        for (int i = 0; i < kRows; i++)
            for (int j = 0; j < kVectors; j++)
                __builtin_prefetch(C + i * ldc + j * kLanes, kLevel == 1, kLevel == 1 ? 3 : 2);
    };
    const auto add_products = [&](int from, int to) {
        for (int k = from; k < to; k++) {
            Vec b[kVectors];
            for (int j = 0; j < kVectors; j++) {
                b[j] = vec_load(B + k * ldb + j * kLanes);
                __builtin_prefetch(B + (k + kAhead) * ldb + j * kLanes);
            }
            for (int i = 0; i < kRows; i++) {
                const Vec a = vec_all(A.data[i * A.row + k * A.col]);
                for (int j = 0; j < kVectors; j++) sum[i][j] = vec_fma(a, b[j], sum[i][j]);
            }
        }
    };
    const int late = std::max(0, K - kInTime);
    fetch(std::integral_constant<int, 2>{});
    add_products(0, late);
    fetch(std::integral_constant<int, 1>{});
    add_products(late, K);
    for (int i = 0; i < kRows; i++) {
        for (int j = 0; j < kVectors; j++) {
            float* const c = C + i * ldc + j * kLanes;
            vec_store(c, add ? vec_load(c) + sum[i][j] : sum[i][j]);
        }
    }
}

// All steps of up to kRows rows by kVectors vectors: at(rows, vectors).
template <int kRows, int kVectors>
struct TileSteps {
    using Step = void(int, Strided, const float*, int64_t, float*, int64_t, bool);
    template <int... kIndex>
    static constexpr std::array<Step*, sizeof...(kIndex)> table(
        std::integer_sequence<int, kIndex...>) {
        return {tile_step<kIndex / kVectors + 1, kIndex % kVectors + 1>...};
    }
    static constexpr auto steps = table(std::make_integer_sequence<int, kRows * kVectors>{});
    static Step* at(int rows, int vectors) { return steps[(rows - 1) * kVectors + vectors - 1]; }
};

// Rows and vectors that fill the registers: 24 sums of 32, or 12 of 16.
constexpr int kStepVectors = kLanes == 16 ? 4 : 2;
constexpr int kStepRows = kLanes >= 8 ? 6 : 4;

// C (M, N) = A (M, K) B (K, N), or += with add, for small matrices in the cache. N is a multiple of
// kLanes.
inline void tile_product(int M, int N, int K, Strided A, const float* B, int64_t ldb, float* C,
                         int64_t ldc, bool add) {
    for (int j = 0; j < N; j += kStepVectors * kLanes) {
        const int vectors = std::min(kStepVectors, (N - j) / kLanes);
        for (int i = 0; i < M; i += kStepRows) {
            const int rows = std::min(kStepRows, M - i);
            TileSteps<kStepRows, kStepVectors>::at(rows, vectors)(
                K, {A.data + i * A.row, A.row, A.col}, B + j, ldb, C + i * ldc + j, ldc, add);
        }
    }
}
