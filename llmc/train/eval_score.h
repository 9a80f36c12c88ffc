// llmc/train/eval_score.h: what the model says to rows of tokens, shared over ranks.
//
// Rows are put in order of length, cut into micro-batches, and each micro-batch runs at the length
// of its longest row. A row's losses are a function of the row alone, so how rows come together,
// and on which rank, changes no bit on the CPU. (A GPU's library of products chooses its algorithm
// by the number of rows: there the last digits may depend on --micro-batch, never on the ranks.)
// Proof: eval_task_test.cpp.
#pragma once
#include <functional>
#include <vector>

#include "llmc/model/gpt.h"
#include "llmc/parallel/comm.h"
#include "llmc/train/eval_rows.h"

// Of each choice of each question.
struct EvalScores {
    std::vector<double> loss;     // of the continuation: the sum over its tokens
    std::vector<int64_t> greedy;  // 1 where each token of it is the likeliest; only where asked for
};

// gpt was made for rows of up to gpt.acts.T tokens. `progress`, where not null, gets (done, in all)
// of this rank's tokens. Every rank returns the scores of all rows.
template <class Elem, class Stream>
EvalScores eval_scores(Gpt<Elem, Stream>& gpt, Shards<Elem, Stream>& shards, const EvalRows& rows,
                       bool want_greedy, Comm& comm,
                       const std::function<void(int64_t, int64_t)>& progress = nullptr);
