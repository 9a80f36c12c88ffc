// Every op against PyTorch: reads dev/reference/ops.h5, which dev/reference/ops.py writes in
// double.
#include <hdf5.h>

#include <algorithm>

#include "llmc/ops/adamw.h"
#include "llmc/ops/attention.h"
#include "llmc/ops/classifier.h"
#include "llmc/ops/embedding.h"
#include "llmc/ops/gelu.h"
#include "llmc/ops/layernorm.h"
#include "llmc/ops/matmul.h"
#include "llmc/ops/op_test.h"
#include "llmc/ops/qknorm.h"
#include "llmc/ops/rmsnorm.h"
#include "llmc/ops/rope.h"
#include "llmc/ops/swiglu.h"

namespace {
constexpr CpuStream s;

// The datasets of one op, as floats or as integers.
class Reference {
  public:
    explicit Reference(const char* op)
        : op_(op), file_(H5Fopen(kPath, H5F_ACC_RDONLY, H5P_DEFAULT)) {
        CHECK(file_ >= 0, Exit::Damaged, "cannot read the reference values", kPath, "",
              "run the tests in the repository's root");
    }
    ~Reference() { EXPECT_GE(H5Fclose(file_), 0); }
    Reference(const Reference&) = delete;

    Buffer operator()(const char* name) const {
        Buffer x(size(name));
        read(name, H5T_NATIVE_FLOAT, x.data());
        return x;
    }
    std::vector<int> integers(const char* name) const {
        std::vector<int> x(size(name));
        read(name, H5T_NATIVE_INT, x.data());
        return x;
    }

  private:
    static constexpr const char* kPath = "dev/reference/ops.h5";

    hid_t open(const char* name) const {
        const hid_t set = H5Dopen2(file_, str(op_, "/", name).c_str(), H5P_DEFAULT);
        CHECK(set >= 0, Exit::Damaged, "no such reference value", str(op_, "/", name));
        return set;
    }
    size_t size(const char* name) const {
        const hid_t set = open(name), space = H5Dget_space(set);
        const hssize_t n = H5Sget_simple_extent_npoints(space);
        EXPECT_GE(H5Sclose(space), 0);
        EXPECT_GE(H5Dclose(set), 0);
        return size_t(n);
    }
    void read(const char* name, hid_t type, void* to) const {
        const hid_t set = open(name);
        EXPECT_GE(H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, to), 0) << name;
        EXPECT_GE(H5Dclose(set), 0);
    }

    const char* op_;
    hid_t file_;
};

// `roundings` of numbers of order `size`, on top of the reference's own rounding.
void expect_near(const char* what, const Buffer& got, const Buffer& want, double roundings,
                 double size = 1) {
    ASSERT_EQ(got.size(), want.size()) << what;
    for (size_t i = 0; i < got.size(); i++) {
        EXPECT_NEAR(got[i], want[i],
                    kEps * (roundings * size + (roundings + 1) * std::fabs(want[i])))
            << what << "[" << i << "]";
    }
}
}  // namespace

TEST(reference, embedding) {
    const Reference r("embedding");
    const int B = 3, T = 5, C = 7, V = 11;
    const std::vector<int> tokens = r.integers("tokens");
    Buffer x(B * T * C), dwte(V * C), dwpe(9 * C);
    embedding_forward(x, tokens.data(), r("wte"), r("wpe"), B, T, C, s);
    embedding_backward(dwte, dwpe, r("dx"), tokens.data(), B, T, C, V, Workspace{}, s);
    expect_near("x", x, r("x"), 1);
    expect_near("dwte", dwte, r("dwte"), B * T);  // at most so many occurrences
    expect_near("dwpe", dwpe, r("dwpe"), B);
}

TEST(reference, residual_layernorm) {
    const Reference r("layernorm");
    const int N = 5, C = 37;
    const Buffer w = r("w");
    Buffer residual(N * C), y(N * C), mean(N), rstd(N), dresidual = r("above"), dw(C), db(C);
    residual_layernorm_forward(residual, y, mean, rstd, r("x"), r("branch"), w, r("b"), N, C, 1e-5f,
                               s);
    Scratch ws(layernorm_backward_workspace_bytes(N, C, s));
    residual_layernorm_backward(dresidual, dw, db, r("dy"), residual, w, mean, rstd, N, C, ws, s);
    // Sums of C numbers of order 1, divided by C; sums over N rows of terms of order 4.
    expect_near("residual", residual, r("residual"), 1);
    expect_near("y", y, r("y"), 12, 3);
    expect_near("dresidual", dresidual, r("dresidual"), 16, 3);
    expect_near("dw", dw, r("dw"), N + 12, 4);
    expect_near("db", db, r("db"), N, 4);
}

TEST(reference, matmul_with_and_without_gelu) {
    const Reference r("matmul");
    const int N = 9, C = 19, OC = 23;
    const Buffer x = r("x"), w = r("w"), b = r("b"), dy = r("dy");
    Scratch ws(matmul_workspace_bytes(N, C, OC, s));
    Buffer y(N * OC), act(N * OC), pre(N * OC), dx(N * C), dpre(N * C), dw(OC * C), db(OC);
    matmul_forward(y, x, w, b, N, C, OC, ws, s);
    matmul_gelu_forward(act, pre, x, w, b, N, C, OC, ws, s);
    matmul_backward_input(dx, dy, w, N, C, OC, ws, s);
    matmul_backward_input_gelu(dpre, dy, w, r("pre"), N, C, OC, ws, s);
    matmul_backward_params(dw, db, dy, x, N, C, OC, ws, s);
    // Sums of 9 to 23 products of order 1; their partial sums are of order 5.
    expect_near("y", y, r("y"), C + 1, 5);
    expect_near("act", act, r("act"), C + 12, 5);
    EXPECT_TRUE(pre == y);
    expect_near("dx", dx, r("dx"), OC, 5);
    expect_near("dpre", dpre, r("dpre"), OC + 12, 5);
    expect_near("dw", dw, r("dw"), N, 5);
    expect_near("db", db, r("db"), N, 5);
}

TEST(reference, gelu) {
    const Reference r("gelu");
    const Buffer x = r("x"), dy = r("dy");
    Buffer y(x.size()), dx(x.size());
    gelu_forward(y, x, x.size(), s);
    gelu_backward(dx, dy, x, x.size(), s);
    // PyTorch's x^3 form in double; ours is exact to a few roundings (vector_math_test.cpp).
    expect_near("y", y, r("y"), 16);
    expect_near("dx", dx, r("dx"), 16, 3);
}

TEST(reference, attention) {
    struct Case {
        const char* name;
        int B, T, H, KV, HS;
    };
    for (const auto& [name, B, T, H, KV, HS] :
         {Case{"attention", 2, 9, 4, 2, 5}, Case{"attention_tiles", 1, 67, 2, 1, 7},
          Case{"attention_grouped", 1, 13, 6, 2, 8}}) {
        const Reference r(name);
        const Buffer qkv = r("qkv");
        Buffer out(B * T * H * HS), lse(B * H * T), dqkv(qkv.size());
        Scratch ws(attention_forward_workspace_bytes(B, T, H, KV, HS, s));
        Scratch ws2(attention_backward_workspace_bytes(B, T, H, KV, HS, s));
        attention_forward(out, lse, qkv, B, T, H, KV, HS, ws, s);
        attention_backward(dqkv, r("dout"), qkv, out, lse, B, T, H, KV, HS, ws2, s);
        // As in attention_test.cpp: HS roundings in a score, and the sums over T cancel.
        const double roundings = 4 * (8 + HS + std::sqrt(T));
        expect_near("out", out, r("out"), roundings);
        expect_near("lse", lse, r("lse"), roundings);
        expect_near("dqkv", dqkv, r("dqkv"), roundings, H / KV * 2);
    }
}

TEST(reference, classifier) {
    const Reference r("classifier");
    const int N = 7, V = 29, Vp = 32;
    const std::vector<int> targets = r.integers("targets");
    const Buffer values = r("logits"), want = r("dlogits");
    Buffer logits(N * Vp, kNan), losses(N), grad(N * V);
    for (int n = 0; n < N; n++) std::copy_n(values + n * V, V, logits + n * Vp);
    classifier_forward_backward(losses, logits, targets.data(), 1.f / 5, N, V, Vp, s);
    for (int n = 0; n < N; n++) std::copy_n(logits + n * Vp, V, grad + n * V);
    // Logits up to 10: an exponent is off by their rounding; then sums of 29.
    expect_near("losses", losses, r("losses"), 10 + 29);
    expect_near("dlogits", grad, want, 10 + 29, 1. / 5);
}

TEST(reference, adamw) {
    const Reference r("adamw");
    const size_t n = 37;
    Buffer p = r("p0"), m(n), v(n);
    const Buffer grads = r("grads"), want_p = r("p"), want_m = r("m"), want_v = r("v");
    for (int t = 1; t <= 3; t++) {
        Buffer g(n), tp(n), tm(n), tv(n);
        const size_t at = size_t(t - 1) * n;
        std::copy_n(grads + at, n, g.data());
        std::copy_n(want_p + at, n, tp.data());
        std::copy_n(want_m + at, n, tm.data());
        std::copy_n(want_v + at, n, tv.data());
        const float half = 0.5f;
        adamw_update(p, m, v, g, &half, n, {1e-2f, 0.9f, 0.95f, 1e-8f, 0.1f, t}, s);
        // Three roundings a step in a moment; the step is lr times a ratio with ten.
        expect_near("m", m, tm, 3 * t, 0.2);
        expect_near("v", v, tv, 4 * t, 0.05);
        expect_near("p", p, tp, 2 * t, 0.1);
    }
}

TEST(reference, residual_rmsnorm) {
    const Reference r("rmsnorm");
    const int N = 5, C = 37;
    const Buffer w = r("w");
    Buffer residual(N * C), y(N * C), rstd(N), dresidual = r("above"), dw(C);
    residual_rmsnorm_forward(residual, y, rstd, r("x"), r("branch"), w, N, C, 1e-5f, s);
    Scratch ws(rmsnorm_backward_workspace_bytes(N, C, s));
    residual_rmsnorm_backward(dresidual, dw, r("dy"), residual, w, rstd, N, C, ws, s);
    // As of the layer norm.
    expect_near("residual", residual, r("residual"), 1);
    expect_near("y", y, r("y"), 12, 3);
    expect_near("dresidual", dresidual, r("dresidual"), 16, 3);
    expect_near("dw", dw, r("dw"), N + 12, 4);
}

TEST(reference, swiglu) {
    const Reference r("swiglu");
    const int N = 5, F = 13;
    const Buffer x = r("x"), dy = r("dy");
    Buffer y(N * F), dx(N * 2 * F);
    swiglu_forward(y, x, N, F, s);
    swiglu_backward(dx, dy, x, N, F, s);
    // An exponential, a quotient and two products of numbers up to 10.
    expect_near("y", y, r("y"), 8);
    expect_near("dx", dx, r("dx"), 12, 3);
}

TEST(reference, rope) {
    const int B = 2, T = 7, H = 3, KV = 1, HS = 8;
    struct Case {
        const char* name;
        RopePairs pairs;
        RopeScaling scaling;
    };
    for (const auto& [name, pairs, scaling] :
         {Case{"rope/half", RopePairs::Half, {}},
          {"rope/interleaved", RopePairs::Interleaved, {}},
          {"rope/stretched", RopePairs::Half, {8, 1, 4, 16}}}) {
        const Reference r(name);
        Buffer table(T * HS), qkv = r("qkv"), dqkv = r("dy");
        rope_table(table, 0, T, HS, 100, scaling);
        rope(qkv, table, B, T, H, KV, HS, pairs, 1, s);
        rope(dqkv, table, B, T, H, KV, HS, pairs, -1, s);
        // Two products of numbers up to 4, with a rounded cosine.
        expect_near(name, qkv, r("y"), 4, 4);
        expect_near(name, dqkv, r("dqkv"), 4, 4);
    }
}

TEST(reference, qknorm) {
    const Reference r("qknorm");
    const int N = 6, H = 3, KV = 2, HS = 10;
    const Buffer qw = r("qw"), kw = r("kw");
    Buffer qkv = r("qkv"), qk(N * (H + KV) * HS), rstd(N * (H + KV)), dqkv = r("dy"), dqw(HS),
           dkw(HS);
    qknorm_forward(qkv, qk, rstd, qw, kw, N, H, KV, HS, 1e-6f, s);
    Scratch ws(qknorm_backward_workspace_bytes(N, H, KV, HS, s));
    qknorm_backward(dqkv, dqw, dkw, qk, qw, kw, rstd, N, H, KV, HS, ws, s);
    // Sums of HS squares; sums over N rows of H heads of terms of order 4.
    expect_near("y", qkv, r("y"), 10, 3);
    expect_near("dqkv", dqkv, r("dqkv"), 16, 3);
    expect_near("dqw", dqw, r("dqw"), N * H + 12, 4);
    expect_near("dkw", dkw, r("dkw"), N * KV + 12, 4);
}
