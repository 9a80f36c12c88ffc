// matmul.h on CUDA against the CPU, with the library's epilogues and with our own kernels instead.
#include "llmc/ops/matmul.h"

#include "llmc/ops/cuda_test.cuh"
#include "llmc/ops/matmul.cuh"

namespace {

struct Size {
    int N, C, OC;
};
// Odd, aligned, and beyond one tile of the own product (128 x 128 x 64) in each direction.
std::vector<Size> sizes() {
    std::vector<Size> all = {{1, 1, 1}, {3, 5, 7}, {24, 64, 40}, {130, 72, 136}, {131, 67, 129}};
    if (std::getenv("TEST_DEEP")) all.insert(all.end(), {{300, 768, 2304}, {257, 1600, 400}});
    return all;
}

class Path {
  public:
    explicit Path(MatmulPath path) { matmul_path = path; }
    ~Path() { matmul_path = MatmulPath::Fused; }
};
constexpr MatmulPath kPaths[] = {MatmulPath::Fused, MatmulPath::Plain, MatmulPath::Own};

// An fp32 sum of `terms` products on either side is off by at most terms * eps of its magnitudes.
double chain(int terms) {
    return (2.0 * terms + 4) * kEps;
}

// sum over k of |a| |b| for every output of a product; a (rows, K), b (columns, K).
Floats magnitudes(const Floats& a, const Floats& b, int rows, int columns, int K,
                  bool a_by_columns = false, bool b_by_columns = false) {
    Floats out(size_t(rows) * columns);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++)
            for (int k = 0; k < K; k++)
                out[size_t(i) * columns + j] +=
                    std::fabs(a[a_by_columns ? size_t(k) * rows + i : size_t(i) * K + k] *
                              b[b_by_columns ? size_t(k) * columns + j : size_t(j) * K + k]);
    return out;
}

template <class Elem>
struct Case {
    int N, C, OC;
    Elems<Elem> x, w, b, dy;
    Floats xf, wf, bf, dyf, cpu_scratch;
    explicit Case(Size z)
        : N(z.N),
          C(z.C),
          OC(z.OC),
          x(random_elems<Elem>(size_t(N) * C, "x")),
          w(random_elems<Elem>(size_t(OC) * C, "w")),
          b(random_elems<Elem>(OC, "b")),
          dy(random_elems<Elem>(size_t(N) * OC, "dy")),
          xf(widen(x)),
          wf(widen(w)),
          bf(widen(b)),
          dyf(widen(dy)),
          cpu_scratch(matmul_workspace_bytes(N, C, OC, kCpu) / sizeof(float) + 1) {}
    Workspace cpu_workspace() { return {cpu_scratch.data(), cpu_scratch.size() * sizeof(float)}; }
};

// One scratch of the largest size for all products: it is 32 MiB, and filling it takes time.
size_t scratch_bytes() {
    size_t most = 0;
    for (const auto [N, C, OC] : sizes())
        most = std::max(most, matmul_workspace_bytes(N, C, OC, kCuda));
    return most;
}

template <class Elem>
void check_forward(Size z, bool bias, Workspace ws) {
    Case<Elem> k(z);
    const auto [N, C, OC] = z;
    const size_t n = size_t(N) * OC;
    Floats y(n), act(n), pre(n);
    matmul_forward(y.data(), k.xf.data(), k.wf.data(), bias ? k.bf.data() : nullptr, N, C, OC,
                   k.cpu_workspace(), kCpu);
    matmul_gelu_forward(act.data(), pre.data(), k.xf.data(), k.wf.data(),
                        bias ? k.bf.data() : nullptr, N, C, OC, k.cpu_workspace(), kCpu);
    const Device<Elem> gx(k.x), gw(k.w), gb(k.b);
    const Elem* gbias = bias ? static_cast<const Elem*>(gb) : nullptr;
    Device<Elem> gy(n), gact(n), gpre(n), gact_only(n);
    matmul_forward<Elem>(gy, gx, gw, gbias, N, C, OC, ws, kCuda);
    matmul_gelu_forward<Elem>(gact, gpre, gx, gw, gbias, N, C, OC, ws, kCuda);
    matmul_gelu_forward<Elem>(gact_only, nullptr, gx, gw, gbias, N, C, OC, ws, kCuda);

    const Floats size = magnitudes(k.xf, k.wf, N, OC, C);
    // Without fused epilogues the product is rounded before the bias is added, and the
    // pre-activation before the GELU, whose slope is at most 1.13.
    const auto tolerance = [&, C = C, OC = OC](size_t i) {
        return chain(C) * (size[i] + std::fabs(k.bf[i % OC])) +
               kRounding<Elem> * (2 * std::fabs(y[i]) + std::fabs(k.bf[i % OC]));
    };
    expect_close("y", gy.host(), y, tolerance);
    expect_close("pre", gpre.host(), pre, tolerance);
    const auto gelu_tolerance = [&](size_t i) {
        return 1.13 * tolerance(i) + kRounding<Elem> * std::fabs(act[i]) +
               16 * kEps * std::fabs(pre[i]);
    };
    expect_close("act", gact.host(), act, gelu_tolerance);
    expect_close("act without pre", gact_only.host(), act, gelu_tolerance);
}

template <class Elem>
void check_backward(Size z, Workspace ws) {
    Case<Elem> k(z);
    const auto [N, C, OC] = z;
    const auto pre = random_elems<Elem>(size_t(N) * C, "pre");
    const Floats dw0 = random_elems<float>(size_t(OC) * C, "dw"),
                 db0 = random_elems<float>(OC, "db");
    Floats dx(size_t(N) * C), dpre(dx.size()), dw = dw0, db = db0;
    matmul_backward_input(dx.data(), k.dyf.data(), k.wf.data(), N, C, OC, k.cpu_workspace(), kCpu);
    matmul_backward_input_gelu(dpre.data(), k.dyf.data(), k.wf.data(), widen(pre).data(), N, C, OC,
                               k.cpu_workspace(), kCpu);
    matmul_backward_params(dw.data(), db.data(), k.dyf.data(), k.xf.data(), N, C, OC,
                           k.cpu_workspace(), kCpu);

    const Device<Elem> gx(k.x), gw(k.w), gdy(k.dy), gpre(pre);
    Device<Elem> gdx(dx.size()), gdpre(dx.size());
    Device<float> gdw(dw0), gdb(db0), gdw_only(dw0);
    matmul_backward_input<Elem>(gdx, gdy, gw, N, C, OC, ws, kCuda);
    matmul_backward_input_gelu<Elem>(gdpre, gdy, gw, gpre, N, C, OC, ws, kCuda);
    matmul_backward_params<Elem>(gdw, gdb, gdy, gx, N, C, OC, ws, kCuda);
    matmul_backward_params<Elem>(gdw_only, nullptr, gdy, gx, N, C, OC, ws, kCuda);

    const Floats dx_size = magnitudes(k.dyf, k.wf, N, C, OC, false, true);
    const Floats dw_size = magnitudes(k.dyf, k.xf, OC, C, N, true, true);
    expect_close("dx", gdx.host(), dx, [&, OC = OC](size_t i) {
        return chain(OC) * dx_size[i] + kRounding<Elem> * std::fabs(dx[i]);
    });
    expect_close("dpre", gdpre.host(), dpre, [&, OC = OC](size_t i) {
        return 1.13 * (chain(OC) + 32 * kEps) * dx_size[i] +
               kRounding<Elem> * (1.13 * std::fabs(dx[i]) + std::fabs(dpre[i]));
    });
    // Accumulation is fp32 for either Elem.
    const auto dw_tolerance = [&, N = N](size_t i) {
        return chain(N) * (dw_size[i] + std::fabs(dw0[i]));
    };
    expect_close("dw", gdw.host(), dw, dw_tolerance);
    expect_close("dw alone", gdw_only.host(), dw, dw_tolerance);
    Floats db_size(db0);
    for (size_t i = 0; i < k.dyf.size(); i++)
        db_size[i % OC] = std::fabs(db_size[i % OC]) + std::fabs(k.dyf[i]);
    expect_close("db", gdb.host(), db, [&, N = N](size_t o) { return chain(N) * db_size[o]; });
}

}  // namespace

TEST(matmul_cuda, forward_agrees_with_the_cpu) {
    Scratch ws(scratch_bytes());
    for (const MatmulPath path : kPaths) {
        const Path guard(path);
        for (const Size z : sizes())
            for (bool bias : {true, false}) {
                SCOPED_TRACE(
                    str(z.N, " x ", z.C, " x ", z.OC, ", bias ", bias, ", path ", int(path)));
                if (path != MatmulPath::Own) check_forward<float>(z, bias, ws);
                check_forward<bf16>(z, bias, ws);
            }
    }
}

TEST(matmul_cuda, backward_agrees_with_the_cpu_and_adds_to_gradients) {
    Scratch ws(scratch_bytes());
    for (const MatmulPath path : kPaths) {
        const Path guard(path);
        for (const Size z : sizes()) {
            SCOPED_TRACE(str(z.N, " x ", z.C, " x ", z.OC, ", path ", int(path)));
            if (path != MatmulPath::Own) check_backward<float>(z, ws);
            check_backward<bf16>(z, ws);
        }
    }
}
