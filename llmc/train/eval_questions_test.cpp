// llmc/train/eval_questions_test.cpp: each task's texts, for each form that its files have.
#include "llmc/train/eval_questions.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "llmc/core/check.h"

namespace {

std::string joined(const EvalQuestion& q) {
    std::string text;
    for (const EvalQuestion::Choice& c : q.choices) text += c.context + "|" + c.continuation + "\n";
    return text + std::to_string(q.gold);
}
std::string one(EvalTask task, const std::string& line) {
    const auto questions = eval_questions(task, "\n" + line + "\n", "f");
    EXPECT_EQ(questions.size(), 1u);
    return joined(questions[0]);
}
std::string refused(EvalTask task, const std::string& text, const std::string& path = "f",
                    const std::string& examples = "", int shots = 0) {
    try {
        eval_questions(task, text, path, examples, shots);
    } catch (const Error& e) {
        return e.what();
    }
    return "not refused";
}
bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

TEST(EvalQuestions, hellaswag_in_llmc_s_text_and_in_the_harness_s) {
    const std::string line =
        R"({"ind": 1, "activity_label": "How to [x] sew", "ctx_a": "A  man.", "ctx_b": "THE [step] end",
            "ctx": "A  man. THE [step] end", "label": "1", "endings": ["a b", "[header] Go [title] on"]})";
    std::string flat = line;
    flat.erase(flat.find('\n'), 1);
    EXPECT_EQ(one(EvalTask::HellaSwag, flat),
              "A  man. THE [step] end| a b\nA  man. THE [step] end| [header] Go [title] on\n1");
    EXPECT_EQ(one(EvalTask::HellaSwagHarness, flat),
              "How to sew: A man. The end| a b\nHow to sew: A man. The end|  Go. on\n1");
    EXPECT_TRUE(has(refused(EvalTask::HellaSwagHarness,
                            R"({"activity_label": "a", "ctx": "b", "label": 0, "endings": ["c"]})"),
                    "key 'ctx_"));
}

TEST(EvalQuestions, the_other_tasks_in_both_forms) {
    EXPECT_EQ(one(EvalTask::Lambada, R"({"text": "He said \"no\" to Ann\n"})"),
              "He said \"no\" to| Ann\n0");
    EXPECT_EQ(one(EvalTask::Lambada, R"({"context": "to", "continuation": "Ann"})"), "to| Ann\n0");
    EXPECT_EQ(
        one(EvalTask::Arc, R"({"query": "Question: Who?", "choices": ["I", "you"], "gold": 1})"),
        "Question: Who?\nAnswer:| I\nQuestion: Who?\nAnswer:| you\n1");
    EXPECT_EQ(one(EvalTask::Arc, R"({"id": "x", "question": {"stem": "Who?", "choices": [)"
                                 R"({"text": "I", "label": "1"}, {"text": "you", "label": "2"}]}, )"
                                 R"("answerKey": "2"})"),
              "Question: Who?\nAnswer:| I\nQuestion: Who?\nAnswer:| you\n1");
}

TEST(EvalQuestions, winogrande_fills_the_gap) {
    EXPECT_EQ(
        one(EvalTask::WinoGrande,
            R"({"sentence": "Ann saw Bob so _ ran.", "option1": "Ann", "option2": "Bob", "answer": "2"})"),
        "Ann saw Bob so Ann| ran.\nAnn saw Bob so Bob| ran.\n1");
    EXPECT_EQ(
        one(EvalTask::WinoGrande,
            R"({"context_options": ["so Ann", "so Bob"], "continuation": "ran.", "gold": 0})"),
        "so Ann| ran.\nso Bob| ran.\n0");
}

TEST(EvalQuestions, mmlu_shows_examples_first) {
    const std::string dev = "q0,a,b,c,d,C\nq1,e,f,g,h,A\n";
    const auto q = eval_questions(EvalTask::Mmlu,
                                  "question,choice0,choice1,choice2,choice3,answer\n"
                                  "\"two\nlines \",1,\"2, 2\",3,4,3\n",
                                  "x/us_law_test.csv", dev, 1);
    ASSERT_EQ(q.size(), 1u);
    ASSERT_EQ(q[0].choices.size(), 4u);
    EXPECT_EQ(q[0].choices[2].context,
              "The following are multiple choice questions (with answers) about us law.\n\n"
              "q0\nA. a\nB. b\nC. c\nD. d\nAnswer: C\n\n"
              "two\nlines\nA. 1\nB. 2, 2\nC. 3\nD. 4\nAnswer:");
    EXPECT_EQ(q[0].choices[2].continuation, " C");
    EXPECT_EQ(q[0].gold, 3);
    EXPECT_EQ(mmlu_examples_path("x/us_law_test.csv"), "x/us_law_dev.csv");
    EXPECT_EQ(mmlu_examples_path("law_val.csv"), "law_dev.csv");
    EXPECT_EQ(mmlu_examples_path("law.csv"), "");
    EXPECT_TRUE(
        has(refused(EvalTask::Mmlu, "q,a,b,c,d,A\n", "law_test.csv", dev, 3), "2 in law_dev.csv"));
}

TEST(EvalQuestions, what_is_no_question_is_refused_by_its_line) {
    const auto hella = [](const std::string& label, const std::string& endings) {
        return R"({"ctx": "a", "label": )" + label + R"(, "endings": )" + endings + "}";
    };
    const std::string fine = hella("0", R"(["b", "c"])");
    EXPECT_TRUE(has(refused(EvalTask::HellaSwag, fine + "\n" + "{oops\n"), "f:2"));
    EXPECT_TRUE(has(refused(EvalTask::HellaSwag, fine + "\n[1]\n"), "f:2"));
    EXPECT_TRUE(has(refused(EvalTask::HellaSwag, hella("2", R"(["b", "c"])")), "answer 2"));
    EXPECT_TRUE(has(refused(EvalTask::HellaSwag, hella("-1", R"(["b", "c"])")), "answer -1"));
    EXPECT_TRUE(has(refused(EvalTask::HellaSwag, hella("\"x\"", R"(["b", "c"])")), "answer -1"));
    for (const char* label : {"4294967296", "1e300", "0.5", "true"})
        EXPECT_TRUE(has(refused(EvalTask::HellaSwag, hella(label, R"(["b", "c"])")), "answer -1"));
    EXPECT_TRUE(has(refused(EvalTask::HellaSwag, hella("0", "[]")), "no right answer"));
    EXPECT_TRUE(
        has(refused(EvalTask::HellaSwag, hella("0", R"(["", "c"])")), "empty continuation"));
    EXPECT_TRUE(has(refused(EvalTask::HellaSwag, "\n \n"), "no questions in f"));
    EXPECT_TRUE(has(refused(EvalTask::Lambada, R"({"text": "word"})"), "no right answer"));
    EXPECT_TRUE(
        has(refused(EvalTask::WinoGrande,
                    R"({"sentence": "no gap", "option1": "a", "option2": "b", "answer": "1"})"),
            "no right answer"));
    EXPECT_TRUE(has(refused(EvalTask::Mmlu, "q,a,b,c,A\n"), "5 fields"));
    EXPECT_TRUE(has(refused(EvalTask::Mmlu, "q,a,b,c,d,E\n"), "'E'"));
    EXPECT_TRUE(has(refused(EvalTask::Mmlu, "q,a,b,c,d,\n"), "no right answer at f:1"));
}

// The published files, whole: as many questions as they say.
TEST(EvalQuestions, published_sets) {
    const char* root = std::getenv("TEST_DATA");
    const std::string dir = root ? root : "data/test";
    const auto read = [&](const std::string& name) {
        std::ifstream in(dir + "/" + name, std::ios::binary);
        return std::string{std::istreambuf_iterator<char>(in), {}};
    };
    if (read("eval/winogrande_val.jsonl").empty()) GTEST_SKIP() << "no " << dir << "/eval";
    EXPECT_EQ(eval_questions(EvalTask::WinoGrande, read("eval/winogrande_val.jsonl"), "w").size(),
              1267u);
    EXPECT_EQ(eval_questions(EvalTask::Arc, read("eval/arc_easy_test.jsonl"), "a").size(), 2376u);
    EXPECT_EQ(eval_questions(EvalTask::Lambada, read("eval/lambada_openai_test.jsonl"), "l").size(),
              5153u);
    EXPECT_EQ(
        eval_questions(EvalTask::HellaSwag, read("eval/hellaswag_val_first400.jsonl"), "h").size(),
        400u);
    const std::string law = "mmlu/high_school_world_history_";
    const auto mmlu = eval_questions(EvalTask::Mmlu, read(law + "test.csv"), law + "test.csv",
                                     read(law + "dev.csv"), 5);
    EXPECT_EQ(mmlu.size(), 237u);
}

}  // namespace
