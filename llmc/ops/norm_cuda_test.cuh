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

// Longest chain of additions in a row sum: C / 32 by a lane, then five by the butterfly; on the CPU
// at most C. Both errors together, relative to the sum of magnitudes.
inline double chain(int C) {
    return (2 + C + C / 32.0 + 5) * kEps;
}
