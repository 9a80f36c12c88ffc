// llmc/train/eval_questions.h: published test sets as questions: contexts and what may follow them.
//
// A model answers a question by how likely it finds each continuation behind its context. What the
// texts are, task by task ("_" is a space that belongs to the continuation):
//
// clang-format off
//   hellaswag          ctx                                                   _ending
//   hellaswag-harness  activity_label: ctx_a Ctx_b, without WikiHow's marks  _ending, likewise
//   lambada            the passage without its last word                     _word
//   mmlu               instruction, examples, question, A. .. D., "Answer:"  _letter
//   arc                Question: ...\nAnswer:                                _choice
//   winogrande         the sentence up to its gap, filled with an option     _rest of the sentence
// clang-format on
//
// hellaswag is llm.c's text (and GPT-2's numbers there); the others are those of EleutherAI's
// lm-evaluation-harness (Gao et al. 2021, doi:10.5281/zenodo.5371628). Sources of the sets: Zellers
// et al. 2019, arXiv:1905.07830; Paperno et al. 2016, arXiv:1606.06031; Hendrycks et al. 2021,
// arXiv:2009.03300; Clark et al. 2018, arXiv:1803.05457; Sakaguchi et al. 2019, arXiv:1907.10641.
// Files: data/README.md. Proof: eval_questions_test.cpp.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "llmc/train/options.h"  // EvalTask

struct EvalQuestion {
    struct Choice {
        std::string context, continuation;
    };
    std::vector<Choice> choices;  // one where the answer is to be said, several to choose from
    int gold = 0;                 // the right one
};

// The questions of a file with this text; `path` is named in errors, and for mmlu it names the
// subject: SUBJECT_test.csv. Damaged, naming the line, where the text is not as the task has it.
// shots: examples with answers before each question, the first of `examples`, the text of
// SUBJECT_dev.csv; for mmlu alone.
std::vector<EvalQuestion> eval_questions(EvalTask task, std::string_view text,
                                         const std::string& path, std::string_view examples = {},
                                         int shots = 0);

// "DIR/SUBJECT_dev.csv" of "DIR/SUBJECT_test.csv" or "DIR/SUBJECT_val.csv"; "" for other names.
std::string mmlu_examples_path(const std::string& path);
