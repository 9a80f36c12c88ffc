#include "llmc/train/eval_task.h"

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <optional>

#include <nlohmann/json.hpp>

#include "llmc/core/hash.h"
#include "llmc/core/plural.h"
#include "llmc/io/text_file.h"
#include "llmc/train/alike.h"
#include "llmc/train/device.h"
#include "llmc/train/options_table.h"
#include "llmc/train/progress.h"
#include "llmc/train/saves.h"

namespace fs = std::filesystem;
using nlohmann::ordered_json;

// ---- counting

EvalResult& operator+=(EvalResult& sum, const EvalResult& more) {
    sum.questions += more.questions;
    sum.by_sum += more.by_sum, sum.by_byte += more.by_byte, sum.by_token += more.by_token;
    sum.bytes_known = sum.bytes_known && more.bytes_known;
    sum.greedy += more.greedy;
    sum.loss += more.loss, sum.loss_squares += more.loss_squares;
    return sum;
}

EvalResult eval_result(const EvalRows& rows, const EvalScores& scores) {
    EvalResult r;
    r.questions = int64_t(rows.questions());
    for (size_t q = 0; q < rows.questions(); q++) {
        const size_t begin = rows.first[q], end = rows.first[q + 1];
        const auto right = [&](auto score) {
            size_t best = begin;
            for (size_t c = begin + 1; c < end; c++)
                if (score(c) < score(best)) best = c;
            return best == begin + size_t(rows.gold[q]);
        };
        const std::vector<double>& loss = scores.loss;
        r.by_sum += right([&](size_t c) { return loss[c]; });
        r.by_byte += right([&](size_t c) { return loss[c] / double(rows.bytes[c]); });
        r.by_token += right([&](size_t c) { return loss[c] / double(rows.tokens[c]); });
        for (size_t c = begin; c < end; c++) r.bytes_known = r.bytes_known && rows.bytes[c] > 0;
        r.greedy += scores.greedy[begin];
        const double gold = loss[begin + size_t(rows.gold[q])];
        r.loss += gold;
        r.loss_squares += gold * gold;
    }
    return r;
}

// ---- what is reported

static void accuracy_add(ordered_json& out, const std::string& name, int64_t right, int64_t n) {
    const double p = double(right) / double(n);
    out[name] = p;
    if (n > 1)
        out[name + "_stderr"] = std::sqrt(p * (1 - p) / double(n - 1));
    else
        out[name + "_stderr"] = nullptr;
}

ordered_json eval_result_json(EvalTask task, const EvalResult& r) {
    const int64_t n = r.questions;
    // The loss of the right answers moves where accuracies stand still.
    ordered_json out = {{"questions", n}, {"gold_loss", r.loss / double(n)}};
    if (task == EvalTask::Lambada) {
        accuracy_add(out, "acc", r.greedy, n);
        // exp(mean): its standard error is, to first order, that of the mean times itself.
        const double mean = r.loss / double(n), perplexity = std::exp(mean);
        out["perplexity"] = perplexity;
        if (n > 1)
            out["perplexity_stderr"] =
                perplexity *
                std::sqrt(std::max(0.0, r.loss_squares / double(n) - mean * mean) / double(n - 1));
        else
            out["perplexity_stderr"] = nullptr;
        return out;
    }
    accuracy_add(out, "acc", r.by_sum, n);
    if (task == EvalTask::Mmlu || task == EvalTask::WinoGrande) return out;
    if (r.bytes_known)
        accuracy_add(out, "acc_norm", r.by_byte, n);
    else
        out["acc_norm"] = out["acc_norm_stderr"] = nullptr;
    if (task != EvalTask::Arc) accuracy_add(out, "acc_llmc", r.by_token, n);
    return out;
}

static const char* meaning(EvalTask task, const std::string& name) {
    if (name == "perplexity") return "exp of the mean loss of a last word";
    if (name == "acc_norm") return "smallest loss a byte (the harness's acc_norm)";
    if (name == "acc_llmc") return "smallest loss a token (llm.c's)";
    if (task == EvalTask::Lambada) return "each token of the word is the likeliest";
    return task == EvalTask::Mmlu ? "likeliest letter" : "smallest loss (the harness's acc)";
}

static void table_add(std::vector<std::pair<std::string, std::string>>& rows, EvalTask task,
                      const ordered_json& result) {
    for (const auto& [name, value] : result.items()) {
        if (!result.contains(name + "_stderr") || value.is_null()) continue;
        const ordered_json& error = result[name + "_stderr"];
        char spread[32] = "n/a   ", text[128];  // one question has no spread
        if (!error.is_null()) std::snprintf(spread, sizeof spread, "%.4f", error.get<double>());
        std::snprintf(text, sizeof text, "%8.4f +- %s  %s", value.get<double>(), spread,
                      meaning(task, name));
        rows.emplace_back(name, text);
    }
}

// ---- the command

namespace {

// One file's questions, as rows.
class Reader {
  public:
    Reader(const Options& opt, const OpenCheckpoint& checkpoint, const ModelConfig& cfg, int max_T)
        : opt_(opt), checkpoint_(checkpoint), cfg_(cfg), max_T_(max_T) {}

    EvalRows rows(const std::string& path) {
        EvalRows rows;
        const std::string text = text_file_read(path, kMaxBytes);
        if (is_llmc_eval(text)) {
            CHECK(opt_.task == EvalTask::HellaSwag, Exit::Usage,
                  path + " is llm.c's file of HellaSwag", "", "", "--task hellaswag");
            eval_rows_add(rows, llmc_eval_parse(text, path), tokenizer(false), cfg_.V, max_T_,
                          path);
            return rows;
        }
        const std::string shown = examples(path);  // sets shots_
        eval_rows_add(rows, eval_questions(opt_.task, text, path, shown, shots_), *tokenizer(true),
                      max_T_, path);
        return rows;
    }
    int shots() const { return shots_; }

  private:
    static constexpr int64_t kMaxBytes = int64_t(1) << 30;

    // Opened when it is needed: llm.c's file can do without.
    Tokenizer* tokenizer(bool needed) {
        const bool some =
            !opt_.tokenizer.empty() || checkpoint_.manifest.meta.train.contains("tokenizer");
        if (tokenizer_ || (!some && !needed)) return tokenizer_.get();
        tokenizer_ = model_tokenizer(opt_, checkpoint_, cfg_);
        return tokenizer_.get();
    }
    std::string examples(const std::string& path) {
        shots_ = std::max(opt_.shots, 0);
        if (opt_.task != EvalTask::Mmlu || opt_.shots == 0) return "";
        const std::string dev = mmlu_examples_path(path);
        std::error_code none;
        if (opt_.shots < 0 && (dev.empty() || !fs::exists(dev, none))) return "";
        if (opt_.shots < 0) shots_ = kMmluShots;
        CHECK(!dev.empty(), Exit::Usage, "no examples for --shots beside " + path, "",
              "files named SUBJECT_test.csv and SUBJECT_dev.csv");
        return text_file_read(dev, kMaxBytes);
    }
    static constexpr int kMmluShots = 5;

    const Options& opt_;
    const OpenCheckpoint& checkpoint_;
    const ModelConfig& cfg_;
    const int max_T_;
    std::unique_ptr<Tokenizer> tokenizer_;
    int shots_ = 0;
};

}  // namespace

template <class Elem, class Stream>
static EvalResult file_result(Gpt<Elem, Stream>& gpt, Shards<Elem, Stream>& shards,
                              const EvalRows& rows, const std::string& path, EvalTask task,
                              World& world) {
    std::optional<Progress> bar;
    const auto progress = [&](int64_t done, int64_t all) {
        if (!bar) bar.emplace(fs::path(path).filename().string(), all);
        bar->update(done, "tokens");
    };
    const EvalScores scores =
        world.rank == 0
            ? eval_scores(gpt, shards, rows, task == EvalTask::Lambada, *world.dp, progress)
            : eval_scores(gpt, shards, rows, task == EvalTask::Lambada, *world.dp);
    for (double loss : scores.loss)
        CHECK(std::isfinite(loss), Exit::NonFinite, "the model's losses are not finite", str(loss),
              "", "`train_gpt verify` checks its checkpoint");
    return eval_result(rows, scores);
}

static std::string task_name(const Options& opt) {
    for (const OptionRow& row : option_table())
        if (row.name == "task" && row.belongs_to(Command::Eval)) return row.get(opt);
    return "";
}

// One object a file, and, where there are several, one for all of them. shots: null where they
// differ.
static void report(const Options& opt, int64_t step, const std::string& file,
                   const ordered_json& shots, int64_t truncated, const EvalResult& result,
                   const World& world) {
    if (world.rank != 0) return;
    const ordered_json numbers = eval_result_json(opt.task, result);
    const std::string task = task_name(opt);
    ordered_json line = {{"model", opt.model}, {"step", step}, {"task", task}, {"file", file}};
    line.update(numbers);
    if (opt.task == EvalTask::Mmlu) line["shots"] = shots;
    line["truncated"] = truncated;
    std::printf("%s\n", line.dump().c_str());
    std::fflush(stdout);

    std::vector<std::pair<std::string, std::string>> table = {
        {"questions", grouped(result.questions)}};
    table_add(table, opt.task, numbers);
    if (truncated)
        table.emplace_back("truncated",
                           grouped(truncated) + " lost the beginning of their context");
    progress_clear();
    std::fprintf(stderr, "%s  %s\n", task.c_str(), file.c_str());
    for (const auto& [name, text] : table)
        std::fprintf(stderr, "  %-10s  %s\n", name.c_str(), text.c_str());
}

// What was read of each file.
static std::string question_lines(const std::vector<std::string>& files,
                                  const std::vector<EvalRows>& sets) {
    std::string lines;
    for (size_t i = 0; i < files.size(); i++) {
        Digest digest;
        for (const EvalRow& row : sets[i].rows)
            digest.update(row.tokens.data(), row.tokens.size() * sizeof(row.tokens[0]));
        digest.update(sets[i].gold.data(), sets[i].gold.size() * sizeof(int));
        lines += str("\n", files[i], " = ", counted(int64_t(sets[i].questions()), "question"), ", ",
                     digest.hex());
    }
    return lines;
}

template <class Elem, class Stream>
static Exit task_with(const Options& opt, World& world) {
    const StreamOwner<Stream> stream;
    Memory<Stream> memory{stream.get()};
    const auto model = model_load<Elem>(opt.model, world, memory);
    const int max_T = opt.seq_len > 0 ? opt.seq_len : model.cfg.max_T;
    check_seq_len(model.cfg, max_T);

    // All files are read before anything is computed: what is wrong with them is said at once.
    Reader reader(opt, model.checkpoint, model.cfg, max_T);
    std::vector<EvalRows> sets;
    std::vector<int> shots;
    size_t longest = 2;
    for (const std::string& path : opt.file) {
        sets.push_back(reader.rows(path));
        shots.push_back(reader.shots());
        for (const EvalRow& row : sets.back().rows) longest = std::max(longest, row.tokens.size());
    }
    check_alike(question_lines(opt.file, sets), world);
    auto gpt = gpt_create<Elem>(model.cfg, opt.micro_batch, int(longest) - 1, Recompute::Block,
                                true, memory);
    const int64_t step = model.checkpoint.manifest.meta.step;
    EvalResult all;
    int64_t truncated = 0;
    for (size_t i = 0; i < sets.size(); i++) {
        const EvalResult result =
            file_result(gpt, *model.shards, sets[i], opt.file[i], opt.task, world);
        report(opt, step, opt.file[i], shots[i], sets[i].truncated, result, world);
        all += result;
        truncated += sets[i].truncated;
    }
    const bool alike = std::equal(shots.begin() + 1, shots.end(), shots.begin());
    if (sets.size() > 1)
        report(opt, step, "all", alike ? ordered_json(shots[0]) : ordered_json(), truncated, all,
               world);
    return Exit::Done;
}

Exit eval_task_run(const Options& opt, World& world) {
    return on_device(
        opt, [&]<class Elem, class Stream>() { return task_with<Elem, Stream>(opt, world); });
}
