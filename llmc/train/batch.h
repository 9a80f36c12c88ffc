// llmc/train/batch.h: the tokens of one optimizer step.
//
// The samples of a step are those with global indices first .. first + M*B - 1 in the order of
// SampleOrder; micro-batch i holds B of them. Rank r of N works on micro-batches M r/N .. M
// (r+1)/N. Where N does not divide M some ranks have one less: they get an empty one, without a
// valid target, whose loss and gradients are 0. So all ranks do the same, ceil(M/N) times.
#pragma once
#include <vector>

#include "llmc/io/tokens.h"

struct Batch {
    int micro_batches = 0;             // ceil(M/N); an empty one is the last
    std::vector<int> tokens, targets;  // (micro_batches, B, T)
    int64_t valid = 0;                 // targets != -1 of this rank

    const int* tokens_of(int i, int64_t BT) const { return tokens.data() + i * BT; }
    const int* targets_of(int i, int64_t BT) const { return targets.data() + i * BT; }
};

Batch batch_read(const TokenFiles& data, uint64_t seed, int64_t first, int micro_batches, int B,
                 int T, int rank, int ranks);
