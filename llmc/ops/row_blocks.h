// llmc/ops/row_blocks.h: how sums over rows are cut on the CPU: at most 64 blocks of at least 16
// rows, by N alone, so that neither the number of threads nor their order changes the result.
#pragma once
#include <algorithm>

#include "llmc/core/round.h"

inline int rows_in_block(int N) {
    return std::max(16, ceil_div(N, 64));
}
inline int row_blocks(int N) {
    return ceil_div(N, rows_in_block(N));
}
