// llmc/ops/norm_cuda_test.cuh: what the tests of layernorm and rmsnorm on CUDA share.
#pragma once
#include <cstdlib>

#include "llmc/ops/cuda_test.cuh"

constexpr float kNormEps = 1e-5f;

// Odd, shorter than a packet, ragged behind packets, aligned, GPT-2's; rows fewer and more than a
// block's warps, and more than all blocks take in one round.
struct NormSize {
    int N, C;
};
inline std::vector<NormSize> norm_sizes() {
    std::vector<NormSize> all = {{1, 1},    {3, 7},   {17, 64},  {9, 250},
                                 {33, 256}, {5, 768}, {2060, 16}};
    if (std::getenv("TEST_DEEP"))
        all.insert(all.end(), {{1024, 768}, {300, 1600}, {300, 2048}, {130, 4096}});
    return all;
}

// body(N, C, shift) for each size, aligned and shifted by an element.
template <class Body>
void for_norm_sizes(Body body) {
    for (const auto [N, C] : norm_sizes())
        for (size_t shift : {0, 1}) {
            SCOPED_TRACE(str("N ", N, ", C ", C, ", shifted by ", shift));
            body(N, C, shift);
        }
}

template <class Elem>
struct NormInputs {
    Elems<Elem> x, branch, w, b, dy;
    NormInputs(int N, int C)
        : x(random_elems<Elem>(size_t(N) * C, "x", 2)),
          branch(random_elems<Elem>(size_t(N) * C, "branch")),
          w(random_elems<Elem>(C, "w")),
          b(random_elems<Elem>(C, "b")),
          dy(random_elems<Elem>(size_t(N) * C, "dy")) {}
};

// Longest chain of additions in a row sum: C / 32 by a lane, then five by the butterfly; on the CPU
// at most C. Both errors together, relative to the sum of magnitudes.
inline double chain(int C) {
    return (2 + C + C / 32.0 + 5) * kEps;
}

// Sums of columns in double, added to what is there: the order of the CPU's sums is its own. A term
// passes at most the rows that one block adds, the 16 partial sums of a thread, the 8 of a column,
// and a few roundings of its own.
struct ColumnSums {
    std::vector<double> sum;
    Floats terms;  // of magnitudes
    explicit ColumnSums(const Floats& before) : sum(before.begin(), before.end()) {
        for (float x : before) terms.push_back(std::fabs(x));
    }
    void add(size_t c, double term) { sum[c] += term, terms[c] += float(std::fabs(term)); }
    void expect(const char* what, const Floats& found, int N) const {
        const double column = (16 * (N / 2048 + 1) + 16 + 8 + 8) * kEps;
        expect_close(what, found, Floats(sum.begin(), sum.end()),
                     [&](size_t c) { return column * terms[c]; });
    }
};

// The fused backward adds the dx that stands alone to what is there.
template <class Elem>
void expect_added(const Elems<Elem>& found, const Elems<Elem>& before, const Elems<Elem>& dx) {
    const Floats start = widen(before), alone = widen(dx);
    Floats expected(alone.size());
    for (size_t i = 0; i < alone.size(); i++) expected[i] = start[i] + alone[i];
    expect_close("dresidual", found, expected, [&](size_t i) {
        return kRounding<Elem> * (std::fabs(alone[i]) + std::fabs(expected[i])) + kEps;
    });
}
