#include "llmc/train/eval_score.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "llmc/core/round.h"
#include "llmc/ops/classifier.h"

namespace {

// log sum exp(logits) - logits[v] for each v asked for, in double precision.
class Distribution {
  public:
    explicit Distribution(std::vector<float> logits) : logits_(std::move(logits)) {
        const double top = *std::max_element(logits_.begin(), logits_.end());
        double sum = 0;
        for (float x : logits_) sum += std::exp(double(x) - top);
        log_sum_ = top + std::log(sum);
    }
    double loss(int v) const { return log_sum_ - double(logits_[size_t(v)]); }
    int likeliest() const {
        return int(std::max_element(logits_.begin(), logits_.end()) - logits_.begin());
    }

  private:
    std::vector<float> logits_;
    double log_sum_;
};

template <class Elem, class Stream>
class Scorer {
  public:
    Scorer(Gpt<Elem, Stream>& gpt, Shards<Elem, Stream>& shards, const EvalRows& all, bool greedy)
        : gpt_(gpt), shards_(shards), want_greedy_(greedy), max_T_(gpt.acts.T) {
        scores_.loss.resize(all.choices());
        scores_.greedy.resize(all.choices());
    }
    ~Scorer() { gpt_.acts.T = max_T_; }

    // At most B rows, the longest first.
    void batch(const std::vector<const EvalRow*>& rows) {
        // Buffers made for B sequences of max_T tokens hold B shorter ones as well. Few different
        // lengths: a GPU plans its products for each.
        constexpr int kStep = 16;
        const int longest = int(rows[0]->tokens.size()) - 1;
        const int T = std::min(round_up(longest, kStep), max_T_), B = gpt_.acts.B;
        gpt_.acts.T = T;
        std::vector<int> tokens(size_t(B) * T), targets(tokens.size(), kIgnoreTarget);
        for (size_t b = 0; b < rows.size(); b++) {
            const EvalRow& row = *rows[b];
            std::copy(row.tokens.begin(), row.tokens.end() - 1, tokens.begin() + long(b) * T);
            std::copy(row.tokens.end() - row.scored, row.tokens.end(),
                      targets.begin() + scored_at(long(b), row));
        }
        gpt_forward_loss(gpt_, shards_, tokens.data(), targets.data());
        losses_.resize(tokens.size());
        memory_to_host(losses_.data(), gpt_.acts.losses, losses_.size() * sizeof(float),
                       gpt_.stream);
        for (size_t b = 0; b < rows.size(); b++) score(*rows[b], scored_at(long(b), *rows[b]));
    }
    EvalScores& scores() { return scores_; }

  private:
    // Where row b's scored places begin in (B, T).
    long scored_at(long b, const EvalRow& row) const {
        return b * gpt_.acts.T + long(row.tokens.size()) - 1 - row.scored;
    }
    Distribution distribution(long n) {
        std::vector<float> logits(size_t(gpt_.cfg.V));
        gpt_logits(gpt_, shards_, n, logits.data());
        return Distribution(std::move(logits));
    }
    void score(const EvalRow& row, long at) {
        if (!row.alternatives.empty()) {
            const Distribution next = distribution(at);
            for (size_t c = 0; c < row.alternatives.size(); c++)
                scores_.loss[row.answer + c] = next.loss(row.alternatives[c]);
            return;
        }
        double loss = 0;
        bool greedy = want_greedy_;
        for (int i = 0; i < row.scored; i++) {
            loss += double(losses_[size_t(at + i)]);
            const int token = row.tokens[row.tokens.size() - size_t(row.scored) + size_t(i)];
            greedy = greedy && distribution(at + i).likeliest() == token;
        }
        scores_.loss[row.answer] = loss;
        scores_.greedy[row.answer] = greedy;
    }

    Gpt<Elem, Stream>& gpt_;
    Shards<Elem, Stream>& shards_;
    const bool want_greedy_;
    const int max_T_;
    std::vector<float> losses_;  // (B, T)
    EvalScores scores_;
};

}  // namespace

template <class Elem, class Stream>
EvalScores eval_scores(Gpt<Elem, Stream>& gpt, Shards<Elem, Stream>& shards, const EvalRows& all,
                       bool want_greedy, Comm& comm,
                       const std::function<void(int64_t, int64_t)>& progress) {
    std::vector<const EvalRow*> order;
    for (const EvalRow& row : all.rows) order.push_back(&row);
    std::stable_sort(order.begin(), order.end(), [](const EvalRow* a, const EvalRow* b) {
        return a->tokens.size() > b->tokens.size();
    });

    // This rank's micro-batches: every comm.size()th one, so that all ranks have as much to do.
    std::vector<std::vector<const EvalRow*>> batches;
    int64_t in_all = 0, done = 0;
    const size_t B = size_t(gpt.acts.B), stride = B * size_t(comm.size());
    for (size_t first = B * size_t(comm.rank()); first < order.size(); first += stride) {
        const auto begin = order.begin() + long(first);
        batches.emplace_back(begin, begin + long(std::min(B, order.size() - first)));
        in_all += int64_t(batches.back()[0]->tokens.size());
    }
    Scorer<Elem, Stream> scorer(gpt, shards, all, want_greedy);
    for (const std::vector<const EvalRow*>& rows : batches) {
        scorer.batch(rows);
        done += int64_t(rows[0]->tokens.size());
        if (progress) progress(done, in_all);
    }
    // Each score comes from one rank and is 0 on the others: the sum is that score.
    EvalScores& scores = scorer.scores();
    comm.all_reduce(scores.loss.data(), scores.loss.size(), ReduceOp::Sum, "losses of choices");
    comm.all_reduce(scores.greedy.data(), scores.greedy.size(), ReduceOp::Sum, "greedy answers");
    return scores;
}

#define EVAL_SCORES_FOR(Elem, Stream)                                                           \
    template EvalScores eval_scores(Gpt<Elem, Stream>&, Shards<Elem, Stream>&, const EvalRows&, \
                                    bool, Comm&, const std::function<void(int64_t, int64_t)>&);
EVAL_SCORES_FOR(float, CpuStream)
FOR_CUDA(EVAL_SCORES_FOR(float, CudaStream) EVAL_SCORES_FOR(bf16, CudaStream))
