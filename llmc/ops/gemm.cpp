// The product by tiles. For each block of k: the tile's strip of B is copied into panels, each of
// which one step of the kernel reads from front to back (tile_product.h). Then a few rows of A at a
// time are copied into the first-level cache, and every panel of B comes to them from the second.
// After Goto, van de Geijn 2008, "Anatomy of high-performance matrix multiplication", ACM TOMS
// 34(3).
#include "llmc/ops/gemm.h"

#include <omp.h>

#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <string_view>

#include "llmc/core/check.h"
#include "llmc/core/round.h"
#include "llmc/ops/tile_product.h"

constexpr int kDepth = 256;  // most k of one block
// Rows and vectors of one step of the kernel: 24 sums in 32 registers, or 12 in 16.
constexpr int kRows = kLanes == 16 ? 8 : 6, kVectors = kLanes == 16 ? 3 : 2;
constexpr int kCols = kVectors * kLanes;
constexpr int64_t kMaxRows = 1024, kMaxCols = 768;  // of a tile
constexpr int kRowPad = 16;  // floats between copied rows of A, which else would share cache sets

using Steps = TileSteps<kRows, kVectors>;

// ---- operands in the order of their use
// One panel of op(B), (depth, kCols): columns beyond `cols` are 0.
static void copy_panel(float* to, const Gemm& g, int64_t k0, int depth, int64_t col, int cols) {
    if (g.opB == Op::Plain) {
        for (int k = 0; k < depth; k++) {
            const float* const from = g.B + (k0 + k) * g.ldb + col;
            std::copy_n(from, cols, to + k * kCols);
            std::fill(to + k * kCols + cols, to + (k + 1) * kCols, 0.f);
        }
        return;
    }
    int done = 0;  // of depth, by squares
    if (cols == kCols) {
        done = depth / kLanes * kLanes;
        for (int j = 0; j < kCols; j += kLanes) {
            const float* const from = g.B + (col + j) * g.ldb + k0;
            for (int k = 0; k < done; k += kLanes) {
                Vec square[kLanes];
                for (int i = 0; i < kLanes; i++) {
                    square[i] = vec_load(from + i * g.ldb + k);
                    __builtin_prefetch(from + (i + kLanes) * g.ldb + k);
                }
                vec_transpose(square);
                for (int i = 0; i < kLanes; i++) vec_store(to + (k + i) * kCols + j, square[i]);
            }
        }
    }
    for (int k = done; k < depth; k++) {
        for (int j = 0; j < kCols; j++)
            to[k * kCols + j] = j < cols ? g.B[(col + j) * g.ldb + k0 + k] : 0.f;
    }
}

// Up to kRows rows of op(A): as rows where A is plain, each (depth) and a pad; where it is
// transposed, its columns side by side, (depth, kRows).
static Strided copy_rows(float* to, const Gemm& g, int64_t k0, int depth, int64_t row, int rows) {
    if (g.opA == Op::Plain) {
        for (int i = 0; i < rows; i++)
            std::copy_n(g.A + (row + i) * g.lda + k0, depth, to + i * (depth + kRowPad));
        return {to, depth + kRowPad, 1};
    }
    const float* const from = g.A + k0 * g.lda + row;
    if (rows == kRows) {  // a constant that the compiler makes a move of
        for (int k = 0; k < depth; k++) std::copy_n(from + k * g.lda, kRows, to + k * kRows);
    } else {
        for (int k = 0; k < depth; k++) std::copy_n(from + k * g.lda, rows, to + k * kRows);
    }
    return {to, 1, kRows};
}

// ---- one tile
// A few rows by one panel, also where the panel is wider than what is left of C.
static void step(int rows, int cols, int depth, Strided A, const float* panel, float* C,
                 int64_t ldc, bool add) {
    if (cols == kCols) return Steps::at(rows, kVectors)(depth, A, panel, kCols, C, ldc, add);
    float sums[kRows * kCols];
    Steps::at(rows, kVectors)(depth, A, panel, kCols, sums, kCols, false);
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < cols; j++) {
            float& c = C[i * ldc + j];
            c = add ? c + sums[i * kCols + j] : sums[i * kCols + j];
        }
    }
}

constexpr int64_t kStripFloats = kDepth * kMaxCols;
constexpr int64_t kScratchFloats = kStripFloats + kRows * (kDepth + kRowPad);

static void gemm_tile(const Gemm& g, Tile t, float* scratch,
                      const std::function<void(Tile)>& finish) {
    float *const strip = scratch, *const a = scratch + kStripFloats;
    const int64_t blocks = ceil_div(g.K, kDepth), each = ceil_div(g.K, blocks);
    for (int64_t k0 = 0; k0 < g.K; k0 += each) {
        const int depth = int(std::min(each, g.K - k0));
        for (int64_t j = 0; j < t.cols; j += kCols)
            copy_panel(strip + j * depth, g, k0, depth, t.col + j,
                       int(std::min<int64_t>(kCols, t.cols - j)));
        for (int64_t i = 0; i < t.rows; i += kRows) {
            const Tile rows{t.row + i, std::min<int64_t>(kRows, t.rows - i), t.col, t.cols};
            const Strided few = copy_rows(a, g, k0, depth, rows.row, int(rows.rows));
            for (int64_t j = 0; j < t.cols; j += kCols) {
                step(int(rows.rows), int(std::min<int64_t>(kCols, t.cols - j)), depth, few,
                     strip + j * depth, g.C + rows.row * g.ldc + t.col + j, g.ldc,
                     k0 > 0 || g.beta != 0.f);
            }
            if (finish && k0 + depth == g.K) finish(rows);
        }
    }
}

// ---- all tiles

// The cut into tiles that takes the least time, counted in cycles for one k: two vectors of sums
// each cycle, and what copying an element of A or B was measured to take.
static Tile tile_size(const Gemm& g, int64_t threads) {
    const double copy_a = g.opA == Op::Plain ? 0.8 : 1.1, copy_b = g.opB == Op::Plain ? 0.6 : 0.9;
    double best = 1e300;
    Tile size{};
    const auto consider = [&](int64_t down, int64_t across) {
        const int64_t rows = round_up(ceil_div(g.M, down), kRows);
        const int64_t cols = round_up(ceil_div(g.N, across), kCols);
        const int64_t tiles = ceil_div(g.M, rows) * ceil_div(g.N, cols);
        const double cycles = double(rows) * double(cols) / (2 * kLanes) + copy_a * double(rows) +
                              copy_b * double(cols);
        const double time = double(ceil_div(tiles, threads)) * cycles;
        if (time < best) best = time, size = {0, rows, 0, cols};
    };
    const int64_t least_down = ceil_div(g.M, kMaxRows), least_across = ceil_div(g.N, kMaxCols);
    for (int64_t across = least_across; across <= least_across + threads; across++) {
        consider(least_down, across);
        for (int64_t turns : {1, 2})
            consider(std::max(least_down, ceil_div(turns * threads, across)), across);
    }
    return size;
}

static const BlasLibrary* chosen_library() {
    static const BlasLibrary* const chosen = []() -> const BlasLibrary* {
        const char* const asked = std::getenv("TRAIN_GPT_BLAS");
        if (!asked || !*asked || std::string_view(asked) == "own") return nullptr;
        const bool onednn = std::string_view(asked) == "onednn";
        CHECK(onednn || std::string_view(asked) == "openblas", Exit::Usage,
              "unknown BLAS in TRAIN_GPT_BLAS", asked, "own, onednn or openblas");
        const BlasLibrary& library = blas_library(onednn ? Blas::OneDnn : Blas::OpenBlas);
        CHECK(library.sgemm, Exit::Resource, "the BLAS that TRAIN_GPT_BLAS asks for is not there",
              asked, onednn ? "libdnnl.so.2" : "libopenblas.so.0 with OpenMP",
              "leave TRAIN_GPT_BLAS unset to use the program's own products");
        return &library;
    }();
    return chosen;
}

const char* gemm_library() {
    if (const BlasLibrary* library = chosen_library()) return library->name;
    return kLanes == 16  ? "own (512-bit vectors)"
           : kLanes == 8 ? "own (256-bit vectors)"
                         : "own (128-bit vectors)";
}

size_t gemm_workspace_bytes() {
    return omp_get_max_threads() * kScratchFloats * sizeof(float);
}

void gemm(const Gemm& g, Workspace ws, const std::function<void(Tile)>& finish) {
    assert(g.beta == 0.f || g.beta == 1.f);
    const BlasLibrary* const library = chosen_library();
    const int64_t slots = int64_t(ws.bytes / (kScratchFloats * sizeof(float)));
    assert(slots > 0);
    const int threads = int(std::min<int64_t>(omp_get_max_threads(), slots));
    const Tile size = tile_size(g, threads);
    const int64_t down = ceil_div(g.M, size.rows), across = ceil_div(g.N, size.cols);
    if (library)
        library->sgemm(g.opA, g.opB, g.M, g.N, g.K, g.A, g.lda, g.B, g.ldb, g.beta, g.C, g.ldc);
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (down * across > 1)
    for (int64_t t = 0; t < down * across; t++) {
        const int64_t row = t % down * size.rows, col = t / down * size.cols;
        const Tile tile{row, std::min(size.rows, g.M - row), col, std::min(size.cols, g.N - col)};
        if (library) {
            if (finish) finish(tile);
        } else {
            gemm_tile(g, tile, static_cast<float*>(ws.data) + omp_get_thread_num() * kScratchFloats,
                      finish);
        }
    }
}
