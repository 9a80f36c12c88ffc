// llmc/ops/matmul.cuh: a switch of matmul.cu for tests.
#pragma once

// False: no fused epilogues, as with a library that has none for the sizes at hand. Then matmul.cu
// runs its own kernels after a plain product.
extern bool matmul_epilogues;
