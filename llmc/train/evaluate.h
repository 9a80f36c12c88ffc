// llmc/train/evaluate.h: the mean loss over the first samples of a data set, shared over ranks.
#pragma once
#include <functional>

#include "llmc/io/tokens.h"
#include "llmc/model/gpt.h"
#include "llmc/parallel/comm.h"

struct Evaluation {
    double loss = 0;      // mean cross-entropy a token, in nats
    int64_t targets = 0;  // tokens that were predicted
};

// Over samples 0 .. min(samples, data.samples)-1 in file order, so every call sees the same tokens;
// samples <= 0 means all. Micro-batch i is rank i mod N's; what is missing to the last round is
// filled up with ignored targets, since with ZeRO-3 ranks meet in every layer. The sum is exact:
// the same bits for any number of ranks. `progress`, where not null, is called with (samples done,
// samples in all).
template <class Elem, class Stream>
Evaluation evaluate(Gpt<Elem, Stream>& gpt, Shards<Elem, Stream>& shards, const TokenFiles& data,
                    int64_t samples, Comm& comm,
                    const std::function<void(int64_t, int64_t)>& progress = nullptr);
