#include "llmc/ops/gemm.h"

#include "llmc/ops/op_test.h"

namespace {
void run(const Gemm& g) {
    Scratch ws(gemm_workspace_bytes());
    gemm(g, ws);
}

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
            run({opA, opB, M, N, K, A, lda, B, ldb, beta, C, ldc});
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
        run({Op::Plain, Op::Transposed, N, OC, C, x, C, w, C, 0.f, y, OC});
        return y;
    });
    expect_same_bits_on_any_threads([&] {
        Buffer dx(N * C);
        run({Op::Plain, Op::Plain, N, C, OC, dy, OC, w, C, 0.f, dx, C});
        return dx;
    });
    expect_same_bits_on_any_threads([&] {
        Buffer dw(OC * C, 1.f);
        run({Op::Transposed, Op::Plain, OC, C, N, dy, OC, x, C, 1.f, dw, C});
        return dw;
    });
}

// In a process of its own, since a process asks once.
[[noreturn]] void check_library(const char* name) {
    setenv("TRAIN_GPT_BLAS", name, 1);
    check_products();
    std::fprintf(stderr, "checked %s\n", gemm_library());
    std::exit(testing::Test::HasFailure() ? 1 : 0);
}
}  // namespace

TEST(gemm, products_against_double) {
    check_products();
}

TEST(gemm, has_the_same_bits_on_any_threads) {
    check_threads();
}

// The promise of the header: the contract's sum in its order, whoever computes it and wherever.
TEST(gemm, an_element_depends_on_its_row_its_column_and_nothing_else) {
    const int64_t M = 300, N = 75, K = 600;
    const Buffer A = random_buffer(M * K, "A"), B = random_buffer(K * N, "B");
    Buffer C(M * N), C1(M * N);
    run({Op::Plain, Op::Plain, M, N, K, A, K, B, N, 0.f, C, N});
    for (int64_t m : {0, 11, 12, 299}) {
        for (int64_t n : {0, 31, 32, 74}) {
            float alone = 0.f;
            for (int64_t k0 = 0; k0 < K; k0 += 200) {  // 3 blocks of at most 256
                float block = 0.f;
                for (int64_t k = k0; k < k0 + 200; k++)
                    block = std::fma(A[m * K + k], B[k * N + n], block);
                alone = k0 > 0 ? alone + block : block;
            }
            EXPECT_EQ(C[m * N + n], alone) << m << " " << n;
        }
    }
    // Rows in pieces, as another micro-batch would have them.
    for (int64_t m = 0; m < M; m += 7)
        run({Op::Plain, Op::Plain, std::min<int64_t>(7, M - m), N, K, A + m * K, K, B, N, 0.f,
             C1 + m * N, N});
    EXPECT_TRUE(C1 == C);
}

TEST(gemm, finishes_every_piece_once) {
    const int64_t sizes[][2] = {{1, 1}, {7, 500}, {1500, 33}, {300, 1700}};
    for (const auto& [M, N] : sizes) {
        const int64_t K = 2;
        const Buffer A(M * K, 1.f), B(N * K, 1.f);
        Buffer C(M * N, kNan);
        Scratch ws(gemm_workspace_bytes());
        gemm({Op::Plain, Op::Transposed, M, N, K, A, K, B, K, 0.f, C, N}, ws, [&](Tile t) {
            for (int64_t m = t.row; m < t.row + t.rows; m++)
                for (int64_t n = t.col; n < t.col + t.cols; n++) C[m * N + n] += 1.f;
        });
        EXPECT_TRUE(C == Buffer(M * N, 3.f)) << M << " " << N;
    }
}

TEST(gemm, a_library_of_the_machine_takes_its_place) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    if (blas_library(Blas::OneDnn).sgemm) {
        EXPECT_EXIT(check_library("onednn"), testing::ExitedWithCode(0), "checked oneDNN");
    }
    if (blas_library(Blas::OpenBlas).sgemm) {
        EXPECT_EXIT(check_library("openblas"), testing::ExitedWithCode(0), "checked OpenBLAS");
    }
    const auto unknown = [] {
        setenv("TRAIN_GPT_BLAS", "fast", 1);
        try {
            gemm_library();
        } catch (const Error& e) {
            std::fprintf(stderr, "%s", e.what());
            std::exit(int(e.code));
        }
    };
    EXPECT_EXIT(unknown(), testing::ExitedWithCode(2),
                "found fast; expected own, onednn or openblas");
    if (!blas_library().sgemm) GTEST_SKIP() << "no BLAS on this machine";
}
