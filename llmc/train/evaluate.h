// llmc/train/evaluate.h: the mean loss over the first samples of a data set.
#pragma once
#include "llmc/io/tokens.h"
#include "llmc/model/gpt.h"

struct Evaluation {
    double loss = 0;      // mean cross-entropy a token, in nats
    int64_t targets = 0;  // tokens that were predicted
};

// Over samples 0 .. min(samples, data.samples)-1 in file order, so every call sees the same tokens;
// samples <= 0 means all. The last batch is filled up with ignored targets. `progress`, where not
// null, is called with (samples done, samples in all).
template <class Elem, class Stream>
Evaluation evaluate(Gpt<Elem, Stream>& gpt, Shards<Elem, Stream>& shards, const TokenFiles& data,
                    int64_t samples, void (*progress)(int64_t, int64_t) = nullptr);
