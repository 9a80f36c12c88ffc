// llmc/ops/matmul.cuh: a switch of matmul.cu, for tests.
#pragma once

// Which code serves a product: the library with its epilogues (and less only where it has no
// algorithm), the library with our own kernels for what follows, or our own product as well.
enum class MatmulPath { Fused, Plain, Own };
extern MatmulPath matmul_path;
