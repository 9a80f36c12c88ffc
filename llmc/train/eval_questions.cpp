#include "llmc/train/eval_questions.h"

#include <cctype>
#include <filesystem>
#include <functional>

#include <nlohmann/json.hpp>

#include "llmc/core/check.h"
#include "llmc/core/plural.h"
#include "llmc/io/csv.h"
#include "llmc/io/json_integer.h"

using nlohmann::json;
using Questions = std::vector<EvalQuestion>;

// ---- text

static std::string stripped(const std::string& text) {
    const char* space = " \t\r\n\f\v";
    const size_t begin = text.find_first_not_of(space);
    if (begin == std::string::npos) return "";
    return text.substr(begin, text.find_last_not_of(space) + 1 - begin);
}

static std::string replaced(std::string text, const std::string& from, const std::string& to) {
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
        text.replace(at, from.size(), to);
    return text;
}

// First letter large, the others small, as Python's capitalize() does with ASCII.
static std::string capitalized(std::string text) {
    for (size_t i = 0; i < text.size(); i++) {
        const unsigned char c = (unsigned char)text[i];
        text[i] = char(i ? std::tolower(c) : std::toupper(c));
    }
    return text;
}

// WikiHow's marks go: " [title]" becomes a full stop, any other [mark] nothing.
static std::string unmarked(const std::string& marked) {
    std::string text = replaced(stripped(marked), " [title]", ". ");
    for (size_t at = 0; (at = text.find('[', at)) != std::string::npos;) {
        const size_t end = text.find(']', at);
        const size_t line = text.find('\n', at);
        if (end == std::string::npos || line < end)
            at++;
        else
            text.erase(at, end + 1 - at);
    }
    return replaced(text, "  ", " ");
}

// ---- JSON, a question a line

static Questions json_lines(std::string_view text, const std::string& path,
                            const std::function<EvalQuestion(const json&)>& question) {
    Questions questions;
    int line = 0;
    for (size_t at = 0; at < text.size();) {
        const size_t end = std::min(text.find('\n', at), text.size());
        const std::string_view one = text.substr(at, end - at);
        at = end + 1;
        line++;
        if (one.find_first_not_of(" \t\r") == std::string_view::npos) continue;
        try {
            questions.push_back(question(json::parse(one)));
        } catch (const json::exception& e) {
            fail(Exit::Damaged, str("no question at ", path, ":", line), e.what(), "",
                 "is this a file of the --task? data/README.md shows them");
        }
        const EvalQuestion& q = questions.back();
        CHECK(q.gold >= 0 && q.gold < int(q.choices.size()), Exit::Damaged,
              str("no right answer at ", path, ":", line), str("answer ", q.gold),
              str("0 to ", int(q.choices.size()) - 1));
    }
    return questions;
}

// A whole number, which some files have as text.
static int number(const json& value) {
    if (json_is_integer(value, 0, INT32_MAX)) return value.get<int>();
    if (!value.is_string()) return -1;
    const std::string text = value.get<std::string>();
    return text.size() == 1 && std::isdigit((unsigned char)text[0]) ? text[0] - '0' : -1;
}

static EvalQuestion hellaswag(const json& line) {
    EvalQuestion q;
    for (const json& ending : line.at("endings"))
        q.choices.push_back({line.at("ctx").get<std::string>(), " " + ending.get<std::string>()});
    q.gold = number(line.at("label"));
    return q;
}

static EvalQuestion hellaswag_harness(const json& line) {
    const std::string context = line.at("activity_label").get<std::string>() + ": " +
                                line.at("ctx_a").get<std::string>() + " " +
                                capitalized(line.at("ctx_b").get<std::string>());
    EvalQuestion q;
    for (const json& ending : line.at("endings"))
        q.choices.push_back({unmarked(context), " " + unmarked(ending.get<std::string>())});
    q.gold = number(line.at("label"));
    return q;
}

// {"text"}: the whole passage, or {"context", "continuation"}.
static EvalQuestion lambada(const json& line) {
    if (!line.contains("text"))
        return {{{line.at("context").get<std::string>(),
                  " " + stripped(line.at("continuation").get<std::string>())}},
                0};
    const std::string text = stripped(line.at("text").get<std::string>());
    const size_t space = text.rfind(' ');
    if (space == std::string::npos) return {};
    return {{{text.substr(0, space), text.substr(space)}}, 0};
}

// AI2's {"question": {"stem", "choices": [{"text", "label"}]}, "answerKey"}, or {"query",
// "choices", "gold"} with a query that begins with "Question: ".
static EvalQuestion arc(const json& line) {
    EvalQuestion q;
    if (line.contains("query")) {
        const std::string context = line.at("query").get<std::string>() + "\nAnswer:";
        for (const json& choice : line.at("choices"))
            q.choices.push_back({context, " " + choice.get<std::string>()});
        q.gold = number(line.at("gold"));
        return q;
    }
    const json& question = line.at("question");
    const std::string context = "Question: " + question.at("stem").get<std::string>() + "\nAnswer:";
    q.gold = -1;
    for (const json& choice : question.at("choices")) {
        if (choice.at("label") == line.at("answerKey")) q.gold = int(q.choices.size());
        q.choices.push_back({context, " " + choice.at("text").get<std::string>()});
    }
    return q;
}

// {"sentence" with a gap "_", "option1", "option2", "answer": "1" | "2"}, or {"context_options",
// "continuation", "gold"}.
static EvalQuestion winogrande(const json& line) {
    EvalQuestion q;
    if (line.contains("context_options")) {
        for (const json& context : line.at("context_options"))
            q.choices.push_back({context.get<std::string>(),
                                 " " + stripped(line.at("continuation").get<std::string>())});
        q.gold = number(line.at("gold"));
        return q;
    }
    const std::string sentence = line.at("sentence").get<std::string>();
    const size_t gap = sentence.find('_');
    if (gap == std::string::npos) return {};
    for (const char* option : {"option1", "option2"})
        q.choices.push_back({sentence.substr(0, gap) + line.at(option).get<std::string>(),
                             " " + stripped(sentence.substr(gap + 1))});
    q.gold = number(line.at("answer")) - 1;
    return q;
}

// ---- MMLU: CSV of question, four choices, answer A..D or 0..3; a first line of names is allowed

constexpr int kLetters = 4;

static std::string file_stem(const std::string& path) {
    return std::filesystem::path(path).stem().string();
}

std::string mmlu_examples_path(const std::string& path) {
    const std::string stem = file_stem(path);
    for (const std::string part : {"_test", "_val"})
        if (stem.ends_with(part) && stem.size() > part.size())
            return (std::filesystem::path(path).parent_path() /
                    (stem.substr(0, stem.size() - part.size()) + "_dev.csv"))
                .string();
    return "";
}

namespace {

struct MmluRecord {
    std::string prompt;  // the question, its choices and "Answer:"
    int gold;
};

}  // namespace

static std::vector<MmluRecord> mmlu_records(std::string_view text, const std::string& path) {
    std::vector<MmluRecord> records;
    for (const CsvRecord& csv : csv_parse(text, path)) {
        const bool names = csv.line == 1 && csv.fields[0] == "question";
        if (names) continue;
        CHECK(csv.fields.size() == 2 + kLetters, Exit::Damaged,
              str("no question at ", path, ":", csv.line),
              counted(int64_t(csv.fields.size()), "field"), "question, four choices, answer");
        const std::string answer = stripped(csv.fields.back());
        const char c = answer.size() == 1 ? answer[0] : '?';
        MmluRecord r{stripped(csv.fields[0]), c >= 'A' && c <= 'D' ? c - 'A' : c - '0'};
        CHECK(r.gold >= 0 && r.gold < kLetters, Exit::Damaged,
              str("no right answer at ", path, ":", csv.line), "'" + answer + "'",
              "A to D, or 0 to 3");
        for (int i = 0; i < kLetters; i++)
            r.prompt += str("\n", char('A' + i), ". ", csv.fields[size_t(1 + i)]);
        r.prompt += "\nAnswer:";
        records.push_back(r);
    }
    return records;
}

static std::string letter(int i) {
    return str(" ", char('A' + i));
}

static Questions mmlu(std::string_view text, const std::string& path, std::string_view examples,
                      int shots) {
    const std::string dev = mmlu_examples_path(path);
    const std::string subject =
        dev.empty() ? file_stem(path) : file_stem(dev).substr(0, file_stem(dev).size() - 4);
    std::string context = "The following are multiple choice questions (with answers) about " +
                          replaced(subject, "_", " ") + ".\n\n";
    const std::vector<MmluRecord> shown = mmlu_records(examples, dev);
    CHECK(shots <= int(shown.size()), Exit::Usage, "not enough examples for --shots",
          str(shown.size(), " in ", dev.empty() ? "no file" : dev), str(shots));
    for (int i = 0; i < shots; i++)
        context += shown[size_t(i)].prompt + letter(shown[size_t(i)].gold) + "\n\n";

    Questions questions;
    for (const MmluRecord& r : mmlu_records(text, path)) {
        EvalQuestion q{{}, r.gold};
        for (int i = 0; i < kLetters; i++) q.choices.push_back({context + r.prompt, letter(i)});
        questions.push_back(std::move(q));
    }
    return questions;
}

// ---- all

static Questions parsed(EvalTask task, std::string_view text, const std::string& path,
                        std::string_view examples, int shots) {
    switch (task) {
        case EvalTask::HellaSwag:
            return json_lines(text, path, hellaswag);
        case EvalTask::HellaSwagHarness:
            return json_lines(text, path, hellaswag_harness);
        case EvalTask::Lambada:
            return json_lines(text, path, lambada);
        case EvalTask::Arc:
            return json_lines(text, path, arc);
        case EvalTask::WinoGrande:
            return json_lines(text, path, winogrande);
        case EvalTask::Mmlu:
            return mmlu(text, path, examples, shots);
        case EvalTask::Loss:
            break;
    }
    return {};
}

Questions eval_questions(EvalTask task, std::string_view text, const std::string& path,
                         std::string_view examples, int shots) {
    const Questions questions = parsed(task, text, path, examples, shots);
    CHECK(!questions.empty(), Exit::Damaged, "no questions in " + path,
          str("a size of ", counted(int64_t(text.size()), "byte")));
    for (size_t i = 0; i < questions.size(); i++)
        for (const EvalQuestion::Choice& c : questions[i].choices)
            CHECK(c.continuation.size() > 1, Exit::Damaged,
                  str("an empty continuation in question ", i + 1, " of ", path));
    return questions;
}
