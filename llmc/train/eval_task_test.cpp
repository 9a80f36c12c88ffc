// llmc/train/eval_task_test.cpp: scores against a naive scorer that asks the model for one token at
// a time; the same bits for every micro-batch and number of ranks; accuracies by hand.
#include "llmc/train/eval_task.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "llmc/model/tiny_models.h"
#include "llmc/parallel/comm_testing.h"

namespace {

constexpr int kMaxT = 40;

// Weights large enough that the model has opinions.
struct Toy {
    ModelConfig cfg;
    Memory<CpuStream> memory{CpuStream{}};
    Shards<float, CpuStream> shards;

    static ModelConfig config(ModelConfig c) {
        c.V = 257, c.Vp = vocab_padded(257), c.max_T = kMaxT;
        return c;
    }
    static ShardsConfig inference() {
        ShardsConfig s;
        s.inference = true;
        return s;
    }
    Toy(const ModelConfig& tiny, Comm& comm)
        : cfg(config(tiny)), shards(param_layout(cfg), inference(), comm, memory) {
        for (TensorSlice& s : shards.master_slices()) {
            param_init(s.data, *s.tensor, 0, s.count, 1);
            for (int64_t i = 0; i < s.count; i++) s.data[i] *= 10;
        }
    }
};

std::vector<EvalQuestion> questions() {
    std::vector<EvalQuestion> all = {
        {{{"A man", " runs away."}, {"A man", " is a"}, {"A man", " oh"}}, 1},
        {{{"so Ann", " left"}, {"so Robert", " left"}}, 0},
        {{{"", "first"}, {"ends in space ", "x"}}, 1},
        {{{"said to", " Ann"}}, 0},
        {{{"so Ann", "x"}, {"so Robert", "y"}}, 0},
        {{{"which letter? ", "A"}, {"which letter? ", "B"}, {"which letter? ", "C"}}, 2},
    };
    // Too long for the model by 1, by much, and just not.
    for (int n : {kMaxT - 3, kMaxT - 2, 3 * kMaxT})
        all.push_back(
            {{{std::string(size_t(n), 'y'), " end"}, {std::string(size_t(n), 'z'), " en"}}, 0});
    return all;
}

// The loss of the last `scored` of these tokens and whether each was the likeliest, token by token.
std::pair<double, bool> naive(Toy& toy, Gpt<float, CpuStream>& gpt, const std::vector<int>& tokens,
                              size_t scored) {
    double loss = 0;
    bool greedy = true;
    for (size_t i = tokens.size() - scored; i < tokens.size(); i++) {
        std::vector<int> input(size_t(kMaxT), 0);
        std::copy_n(tokens.begin(), i, input.begin());
        gpt_forward(gpt, toy.shards, input.data());
        std::vector<float> logits(size_t(toy.cfg.V));
        gpt_logits(gpt, toy.shards, int64_t(i) - 1, logits.data());
        double sum = 0;
        for (float x : logits) {
            sum += std::exp(double(x));
            greedy = greedy && x <= logits[size_t(tokens[i])];
        }
        loss += std::log(sum) - double(logits[size_t(tokens[i])]);
    }
    return {loss, greedy};
}

EvalScores scores(Toy& toy, const EvalRows& rows, int B, Comm& comm) {
    auto gpt = gpt_create<float>(toy.cfg, B, kMaxT, Recompute::Block, true, toy.memory);
    return eval_scores(gpt, toy.shards, rows, true, comm);
}

class EvalTaskModels : public testing::TestWithParam<ModelConfig> {};
INSTANTIATE_TEST_SUITE_P(models, EvalTaskModels,
                         testing::Values(tiny_config(true), tiny_llama(false)));

TEST_P(EvalTaskModels, scores_are_those_of_a_naive_scorer) {
    const auto comm = comm_self();
    Toy toy(GetParam(), *comm);
    const auto tokenizer = tokenizer_open("byte");
    EvalRows rows;
    eval_rows_add(rows, questions(), *tokenizer, kMaxT, "f");
    EXPECT_EQ(rows.truncated, 2);
    EXPECT_EQ(rows.bytes[0], int64_t(std::string("runs away.").size()));
    EXPECT_EQ(rows.tokens[0], int64_t(std::string(" runs away.").size()));
    auto gpt = gpt_create<float>(toy.cfg, 1, kMaxT, Recompute::Block, true, toy.memory);
    const EvalScores found = scores(toy, rows, 3, *comm);
    ASSERT_EQ(found.loss.size(), rows.choices());

    size_t choice = 0, greedy_ones = 0;
    for (const EvalQuestion& q : questions())
        for (const EvalQuestion::Choice& c : q.choices) {
            // Bytes are tokens, so this needs nothing of eval_rows.cpp.
            std::vector<int> tokens;
            if (c.context.empty()) tokens.push_back(256);
            for (unsigned char b : c.context + c.continuation) tokens.push_back(b);
            // White space before the border is asked about too.
            const size_t spaces = c.context.ends_with(' ') ? 1 : 0;
            const size_t scored = c.continuation.size() + spaces;
            if (tokens.size() > size_t(kMaxT) + 1)
                tokens.erase(tokens.begin(), tokens.end() - (kMaxT + 1));
            const auto [loss, greedy] = naive(toy, gpt, tokens, scored);
            // A float loss below 64 is off by 2e-6, its sum of 257 exponentials by 257 * 6e-8.
            EXPECT_NEAR(found.loss[choice], loss, double(scored) * 2e-5) << "choice " << choice;
            // Choices that share a row are only compared by their losses.
            if (q.choices.size() < 3 || scored > 1) {
                EXPECT_EQ(found.greedy[choice], greedy) << "choice " << choice;
            }
            greedy_ones += greedy;
            choice++;
        }
    EXPECT_EQ(choice, rows.choices());
    EXPECT_LT(greedy_ones, choice);
}

// What the model says itself, and that with one token changed and gone on from there.
TEST_P(EvalTaskModels, greedy_is_each_token_and_not_the_last_alone) {
    const auto comm = comm_self();
    Toy toy(GetParam(), *comm);
    auto gpt = gpt_create<float>(toy.cfg, 1, kMaxT, Recompute::Block, true, toy.memory);
    const auto likeliest = [&](const std::vector<int>& tokens) {
        std::vector<int> input(size_t(kMaxT), 0);
        std::copy(tokens.begin(), tokens.end(), input.begin());
        gpt_forward(gpt, toy.shards, input.data());
        std::vector<float> logits(size_t(toy.cfg.V));
        gpt_logits(gpt, toy.shards, int64_t(tokens.size()) - 1, logits.data());
        return int(std::max_element(logits.begin(), logits.end()) - logits.begin());
    };
    constexpr int kScored = 3;
    EvalRows rows;
    for (int changed = 0; changed <= kScored; changed++) {
        EvalRow row{{'a', 'n', 'd'}, kScored, {}, size_t(changed)};
        for (int i = 0; i < kScored; i++)
            row.tokens.push_back((likeliest(row.tokens) + (i == changed)) % toy.cfg.V);
        rows.rows.push_back(row);
    }
    rows.first.push_back(rows.rows.size());
    const std::vector<int64_t> expected = {0, 0, 0, 1};
    EXPECT_EQ(scores(toy, rows, 3, *comm).greedy, expected);
    EXPECT_TRUE(on_ranks(3, [&](Comm& ranks) {
        Toy mine(GetParam(), ranks);
        EXPECT_EQ(scores(mine, rows, 1, ranks).greedy, expected);
    }));
}

TEST_P(EvalTaskModels, the_same_bits_for_every_micro_batch_and_number_of_ranks) {
    const auto tokenizer = tokenizer_open("byte");
    EvalRows rows;
    eval_rows_add(rows, questions(), *tokenizer, kMaxT, "f");
    const auto self = comm_self();
    Toy toy(GetParam(), *self);
    const EvalScores expected = scores(toy, rows, 1, *self);
    for (int B : {2, 3, 8, 31}) {
        const EvalScores found = scores(toy, rows, B, *self);
        EXPECT_EQ(found.loss, expected.loss) << "micro-batch " << B;
        EXPECT_EQ(found.greedy, expected.greedy) << "micro-batch " << B;
    }
    // More ranks than micro-batches too.
    for (const auto& [ranks, B] : {std::pair{2, 1}, {3, 2}, {5, 8}})
        EXPECT_TRUE(on_ranks(ranks,
                             [&, B = B](Comm& comm) {
                                 Toy mine(GetParam(), comm);
                                 const EvalScores found = scores(mine, rows, B, comm);
                                 EXPECT_EQ(found.loss, expected.loss);
                                 EXPECT_EQ(found.greedy, expected.greedy);
                             }))
            << ranks << " ranks";
}

TEST(EvalTask, one_row_serves_choices_of_one_token) {
    const auto tokenizer = tokenizer_open("byte");
    const std::vector<EvalQuestion> letters = {{{{"Q", "A"}, {"Q", "B"}, {"Q", "C"}}, 0}};
    EvalRows shared, apart;
    eval_rows_add(shared, letters, *tokenizer, kMaxT, "f");
    ASSERT_EQ(shared.rows.size(), 1u);
    EXPECT_EQ(shared.rows[0].alternatives, (std::vector<int>{'A', 'B', 'C'}));
    for (const EvalQuestion::Choice& c : letters[0].choices)
        eval_rows_add(apart, {{{c}, 0}}, *tokenizer, kMaxT, "f");
    ASSERT_EQ(apart.rows.size(), 3u);
    const auto comm = comm_self();
    Toy toy(tiny_config(true), *comm);
    const EvalScores a = scores(toy, shared, 2, *comm), b = scores(toy, apart, 2, *comm);
    for (size_t c = 0; c < 3; c++) EXPECT_NEAR(a.loss[c], b.loss[c], 2e-5);
    EXPECT_NE(a.loss[0], a.loss[1]);
}

TEST(EvalTask, ids_of_llmc_s_file) {
    const std::vector<LlmcEvalQuestion> q = {{2, {10, 11}, {{97, 32}, {98}, {32, 99, 100}, {101}}}};
    EvalRows rows;
    const auto tokenizer = tokenizer_open("byte");
    eval_rows_add(rows, q, tokenizer.get(), 257, kMaxT, "f");
    ASSERT_EQ(rows.rows.size(), 4u);
    EXPECT_EQ(rows.rows[2].tokens, (std::vector<int>{10, 11, 32, 99, 100}));
    EXPECT_EQ(rows.rows[2].scored, 3);
    EXPECT_EQ(rows.bytes, (std::vector<int64_t>{1, 0, 2, 0}));
    EXPECT_EQ(rows.tokens, (std::vector<int64_t>{2, 1, 3, 1}));
    EvalRows without;
    eval_rows_add(without, q, nullptr, 257, kMaxT, "f");
    EXPECT_EQ(without.bytes, (std::vector<int64_t>{0, 0, 0, 0}));
    EXPECT_THROW(eval_rows_add(without, q, nullptr, 101, kMaxT, "f"), Error);
    EXPECT_THROW(eval_rows_add(without, q, nullptr, 257, 2, "f"), Error);  // 3 ids to say
}

TEST(EvalTask, accuracies_by_hand) {
    // Four questions; by sum, byte and token another choice wins in the first, and another number
    // of them is right. Equal ones: the first.
    EvalRows rows;
    rows.first = {0, 3, 5, 7, 9};
    rows.gold = {1, 0, 1, 0};
    rows.tokens = {1, 2, 9, 1, 1, 4, 4, 1, 3};
    rows.bytes = {1, 20, 10, 3, 3, 5, 5, 2, 2};
    const EvalScores s{{3, 4, 4.5, 2, 2, 6, 7, 2, 3}, {0, 0, 0, 1, 0, 0, 0, 0, 1}};
    const EvalResult r = eval_result(rows, s);
    EXPECT_EQ(r.questions, 4);
    EXPECT_EQ(r.by_sum, 2);    // the tie and the last
    EXPECT_EQ(r.by_byte, 3);   // 4 / 20 is the smallest a byte, too
    EXPECT_EQ(r.by_token, 1);  // 4.5 / 9 and 3 / 3 are the smallest a token, and wrong
    EXPECT_EQ(r.greedy, 1);
    EXPECT_DOUBLE_EQ(r.loss, 4 + 2 + 7 + 2);

    const auto json = eval_result_json(EvalTask::HellaSwag, r);
    EXPECT_DOUBLE_EQ(json["acc"], 2 / 4.);
    EXPECT_DOUBLE_EQ(json["acc_norm"], 3 / 4.);
    EXPECT_DOUBLE_EQ(json["acc_llmc"], 1 / 4.);
    EXPECT_DOUBLE_EQ(json["acc_norm_stderr"], std::sqrt(3 / 16. / 3));
    const auto lambada = eval_result_json(EvalTask::Lambada, r);
    EXPECT_DOUBLE_EQ(lambada["perplexity"], std::exp(15 / 4.));
    // Losses 4, 2, 7, 2 have a sample variance of 16.75 / 3; that of their mean is a quarter of it.
    EXPECT_NEAR(lambada["perplexity_stderr"], std::exp(15 / 4.) * std::sqrt(16.75 / 3 / 4), 1e-10);
    EXPECT_DOUBLE_EQ(lambada["acc"], 1 / 4.);
    EXPECT_FALSE(eval_result_json(EvalTask::Mmlu, r).contains("acc_norm"));

    EvalResult sum = r;
    sum += r;
    EXPECT_EQ(sum.questions, 8);
    EXPECT_EQ(sum.by_byte, 6);
    EXPECT_DOUBLE_EQ(sum.loss_squares, 2 * (16 + 4 + 49 + 4));
    rows.bytes[6] = 0;
    EXPECT_TRUE(eval_result_json(EvalTask::HellaSwag, eval_result(rows, s))["acc_norm"].is_null());
}

}  // namespace
