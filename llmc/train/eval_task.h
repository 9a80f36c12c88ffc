// llmc/train/eval_task.h: `train_gpt eval --task NAME --file FILE...`: from losses of choices to
// accuracies.
//
// The answer given is the choice of the smallest score, the first of equal ones. Scores:
//   sum    the loss of the continuation, summed over its tokens      (the harness's acc)
//   byte   that divided by the continuation's length in bytes        (the harness's acc_norm, which
//          counts characters: the same in ASCII)
//   token  that divided by the number of its tokens                  (llm.c's HellaSwag)
// The standard error of an accuracy p over n questions is sqrt(p (1 - p) / (n - 1)).
// Proof: eval_task_test.cpp.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "llmc/core/check.h"
#include "llmc/parallel/world.h"
#include "llmc/train/eval_score.h"

struct EvalResult {
    int64_t questions = 0;
    int64_t by_sum = 0, by_byte = 0, by_token = 0;  // right answers
    bool bytes_known = true;
    int64_t greedy = 0;                 // of what is to be said, not chosen: LAMBADA
    double loss = 0, loss_squares = 0;  // of right answers, and its square: sums over questions
};
EvalResult& operator+=(EvalResult& sum, const EvalResult& more);

EvalResult eval_result(const EvalRows& rows, const EvalScores& scores);

// As it is printed: what the task reports, each accuracy with its standard error.
nlohmann::ordered_json eval_result_json(EvalTask task, const EvalResult& result);

Exit eval_task_run(const Options& opt, World& world);  // JSON lines on stdout, a table on stderr
