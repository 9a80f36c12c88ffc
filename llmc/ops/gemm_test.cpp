#include "llmc/ops/gemm.h"

#include "llmc/ops/op_test.h"

namespace {
// All four forms at sizes of one tile and of many, on top of what C holds or not, against double;
// strides wider than the matrices.
void check_products() {
    const int64_t sizes[][3] = {{1, 1, 1}, {3, 5, 7}, {17, 1, 33}, {70, 101, 300}, {300, 410, 19}};
    for (const auto& [M, N, K] : sizes) {
        for (int form = 0; form < 8; form++) {
            const Op opA = form & 1 ? Op::Transposed : Op::Plain;
            const Op opB = form & 2 ? Op::Transposed : Op::Plain;
            const float beta = form & 4 ? 1.f : 0.f;
            const int64_t lda = (form & 1 ? M : K) + 3, ldb = (form & 2 ? K : N) + 2, ldc = N + 1;
            const Buffer A = random_buffer((form & 1 ? K : M) * lda, "A");
            const Buffer B = random_buffer((form & 2 ? N : K) * ldb, "B");
            Buffer C = beta ? random_buffer(M * ldc, "C") : Buffer(M * ldc, kNan);
            const Buffer C0 = C;
            gemm(opA, opB, M, N, K, A, lda, B, ldb, beta, C, ldc);
            for (int64_t m = 0; m < M; m++) {
                for (int64_t n = 0; n < N; n++) {
                    double sum = beta ? C0[m * ldc + n] : 0, size = std::fabs(sum);
                    for (int64_t k = 0; k < K; k++) {
                        const double term = double(A[form & 1 ? k * lda + m : m * lda + k]) *
                                            B[form & 2 ? n * ldb + k : k * ldb + n];
                        sum += term;
                        size += std::fabs(term);
                    }
                    // At most K + 1 roundings of partial sums of at most this size.
                    ASSERT_NEAR(C[m * ldc + n], sum, kEps * (K + 1) * size) << M << " " << form;
                }
                ASSERT_TRUE(Buffer::same_bits(C[m * ldc + N], C0[m * ldc + N])) << "between rows";
            }
        }
    }
}

// As the forward, the input's and the parameters' gradient of a layer.
void check_threads() {
    const int64_t N = 130, C = 95, OC = 450;
    const Buffer x = random_buffer(N * C, "x"), w = random_buffer(OC * C, "w");
    const Buffer dy = random_buffer(N * OC, "dy");
    expect_same_bits_on_any_threads([&] {
        Buffer y(N * OC);
        gemm(Op::Plain, Op::Transposed, N, OC, C, x, C, w, C, 0.f, y, OC);
        return y;
    });
    expect_same_bits_on_any_threads([&] {
        Buffer dx(N * C);
        gemm(Op::Plain, Op::Plain, N, C, OC, dy, OC, w, C, 0.f, dx, C);
        return dx;
    });
    expect_same_bits_on_any_threads([&] {
        Buffer dw(OC * C, 1.f);
        gemm(Op::Transposed, Op::Plain, OC, C, N, dy, OC, x, C, 1.f, dw, C);
        return dw;
    });
}

// In a process of its own, since a process loads one library.
[[noreturn]] void check_library(const char* name) {
    setenv("TRAIN_GPT_BLAS", name, 1);
    check_products();
    check_threads();
    std::fprintf(stderr, "checked %s\n", gemm_library());
    std::exit(testing::Test::HasFailure() ? 1 : 0);
}
} // namespace

TEST(gemm, tiles_cover_the_matrix_once_and_give_every_thread_some) {
    for (int64_t M : {1, 63, 64, 768, 1024, 50304}) {
        for (int64_t N : {1, 97, 768, 2304, 50304}) {
            int64_t covered = 0;
            gemm_tiles(M, N, [&](Tile t) {
#pragma omp atomic
                covered += t.rows * t.cols;
                EXPECT_LE(t.row + t.rows, M);
                EXPECT_LE(t.col + t.cols, N);
            });
            EXPECT_EQ(covered, M * N);
        }
    }
}

TEST(gemm, products_and_threads_with_the_library_of_this_machine) {
    check_products();
    check_threads();
}

TEST(gemm, products_and_threads_with_each_library) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(check_library("onednn"), testing::ExitedWithCode(0), "checked oneDNN");
    EXPECT_EXIT(check_library("openblas"), testing::ExitedWithCode(0), "checked OpenBLAS");
    const auto unknown = [] {
        setenv("TRAIN_GPT_BLAS", "fast", 1);
        try {
            gemm_library();
        } catch (const Error& e) {
            std::fprintf(stderr, "%s", e.what());
            std::exit(int(e.code));
        }
    };
    EXPECT_EXIT(unknown(), testing::ExitedWithCode(2), "found fast; expected onednn or openblas");
}
