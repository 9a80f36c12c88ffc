#include "llmc/train/eval_rows.h"

#include <algorithm>

#include "llmc/core/check.h"
#include "llmc/core/plural.h"

IdsPair encode_pair(Tokenizer& tokenizer, const EvalQuestion::Choice& choice) {
    // White space at the end of a context belongs to the token that follows.
    const size_t end = choice.context.find_last_not_of(" \t\n\r") + 1;
    const std::string context = choice.context.substr(0, end);
    IdsPair ids{tokenizer.encode(context),
                tokenizer.encode(context + choice.context.substr(end) + choice.continuation)};
    const size_t cut = ids.context.size();
    CHECK(ids.continuation.size() > cut, Exit::Usage, "a continuation without tokens of its own",
          "'" + choice.continuation + "' behind '" +
              context.substr(context.size() - std::min<size_t>(context.size(), 20)) + "'");
    // A token across the border counts as context.
    std::copy_n(ids.continuation.begin(), cut, ids.context.begin());
    ids.continuation.erase(ids.continuation.begin(), ids.continuation.begin() + long(cut));
    if (tokenizer.eot() >= 0 && (tokenizer.begins_texts() || cut == 0))
        ids.context.insert(ids.context.begin(), tokenizer.eot());
    CHECK(!ids.context.empty(), Exit::Usage, "nothing to begin a text with",
          "an empty context and a tokenizer without end-of-text");
    return ids;
}

// Where the choices of a question differ in their one token alone, one row serves all of them.
static bool share_a_row(const std::vector<IdsPair>& pairs) {
    return pairs.size() > 1 && std::all_of(pairs.begin(), pairs.end(), [&](const IdsPair& p) {
               return p.continuation.size() == 1 && p.context == pairs[0].context;
           });
}

static void question_add(EvalRows& all, const std::vector<IdsPair>& pairs, int gold,
                         const std::vector<int64_t>& bytes, int max_T, const std::string& where) {
    bool truncated = false;
    for (size_t c = 0; c < pairs.size(); c++) {
        const IdsPair& p = pairs[c];
        all.tokens.push_back(int64_t(p.continuation.size()));
        all.bytes.push_back(bytes[c]);
        if (c > 0 && share_a_row(pairs)) {
            all.rows.back().alternatives.push_back(p.continuation[0]);
            continue;
        }
        EvalRow row{p.context, int(p.continuation.size()), {}, all.choices() + c};
        row.tokens.insert(row.tokens.end(), p.continuation.begin(), p.continuation.end());
        if (share_a_row(pairs)) row.alternatives = p.continuation;
        CHECK(row.scored <= max_T, Exit::Usage,
              str("a continuation in question ", all.questions() + 1, " of ", where,
                  " does not fit into the model"),
              counted(row.scored, "token"), str("at most ", max_T), "a longer --seq-len");
        // The model reads all tokens but the last.
        const int64_t over = int64_t(row.tokens.size()) - 1 - max_T;
        if (over > 0) row.tokens.erase(row.tokens.begin(), row.tokens.begin() + over);
        truncated = truncated || over > 0;
        all.rows.push_back(std::move(row));
    }
    all.truncated += truncated;
    all.gold.push_back(gold);
    all.first.push_back(all.choices() + pairs.size());
}

void eval_rows_add(EvalRows& all, const std::vector<EvalQuestion>& questions, Tokenizer& tokenizer,
                   int max_T, const std::string& where) {
    for (const EvalQuestion& q : questions) {
        std::vector<IdsPair> pairs;
        std::vector<int64_t> bytes;
        for (const EvalQuestion::Choice& c : q.choices) {
            pairs.push_back(encode_pair(tokenizer, c));
            bytes.push_back(int64_t(c.continuation.size()) - 1);
        }
        question_add(all, pairs, q.gold, bytes, max_T, where);
    }
}

void eval_rows_add(EvalRows& all, const std::vector<LlmcEvalQuestion>& questions,
                   const Tokenizer* tokenizer, int V, int max_T, const std::string& where) {
    const auto check_ids = [&](const std::vector<int>& ids) {
        for (int id : ids)
            CHECK(id < V, Exit::Damaged,
                  str("an id outside the vocabulary in question ", all.questions() + 1, " of ",
                      where),
                  str("id ", id), str("ids below ", V), "is this the tokenizer of the model?");
    };
    for (const LlmcEvalQuestion& q : questions) {
        std::vector<IdsPair> pairs;
        std::vector<int64_t> bytes;
        check_ids(q.context);
        for (const std::vector<int>& choice : q.choices) {
            check_ids(choice);
            pairs.push_back({q.context, choice});
            const bool known = tokenizer && std::all_of(choice.begin(), choice.end(), [&](int id) {
                                   return id < tokenizer->vocab_size();
                               });
            const int space = tokenizer && tokenizer->space_before_text() ? 0 : 1;
            bytes.push_back(known ? int64_t(tokenizer->decode(choice).size()) - space : 0);
        }
        question_add(all, pairs, q.label, bytes, max_T, where);
    }
}
