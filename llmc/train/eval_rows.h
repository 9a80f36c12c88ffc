// llmc/train/eval_rows.h: questions as rows of tokens that a model reads.
//
// Texts are cut into tokens as the harness does it: context and continuation together, and what is
// beyond the tokens of the context alone is the continuation. A context begins with the tokenizer's
// begin-of-text if it has one (LLaMA's kinds); <|endoftext|> of GPT-2's kind stands before it only
// where there is no context. A row too long for the model loses tokens at its beginning.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/io/llmc_eval.h"
#include "llmc/io/tokenizer.h"
#include "llmc/train/eval_questions.h"

// One sequence for the model, and what it is asked about: its last `scored` tokens; with
// `alternatives`, each of these in place of the last token, which saves a row each.
struct EvalRow {
    std::vector<int> tokens;
    int scored = 0;
    std::vector<int> alternatives;
    // Its score's place among all choices of all questions; of alternatives, the first's.
    size_t answer = 0;
};

// The choices of all questions one after the other: question i has choices
// first[i] .. first[i+1]-1.
struct EvalRows {
    std::vector<EvalRow> rows;
    std::vector<size_t> first = {0};
    std::vector<int> gold;        // of each question
    std::vector<int64_t> tokens;  // of each choice's continuation
    std::vector<int64_t> bytes;   // the same without the space before it; 0 where it is unknown
    int64_t truncated = 0;        // questions with a row that was too long

    size_t questions() const { return gold.size(); }
    size_t choices() const { return first.back(); }
};

// Ids of a text and of what follows it. Usage if nothing is left for the continuation.
struct IdsPair {
    std::vector<int> context, continuation;
};
IdsPair encode_pair(Tokenizer& tokenizer, const EvalQuestion::Choice& choice);

// Appends. max_T: tokens that the model reads at most. `where` is named in errors: Usage for a
// continuation that is longer than that.
void eval_rows_add(EvalRows& all, const std::vector<EvalQuestion>& questions, Tokenizer& tokenizer,
                   int max_T, const std::string& where);
// Questions that are ids already; the tokenizer, which may be null, tells their bytes. Damaged for
// an id that a vocabulary of V does not have.
void eval_rows_add(EvalRows& all, const std::vector<LlmcEvalQuestion>& questions,
                   const Tokenizer* tokenizer, int V, int max_T, const std::string& where);
