#include "llmc/io/llmc_eval.h"

#include <algorithm>
#include <cstring>

#include "llmc/core/check.h"
#include "llmc/core/plural.h"

constexpr size_t kHeaderBytes = 1024;
constexpr int kBegin = 65535, kChoices = 4;

bool is_llmc_eval(std::string_view bytes) {
    int32_t magic = 0;
    if (bytes.size() >= sizeof magic) std::memcpy(&magic, bytes.data(), sizeof magic);
    return magic == kLlmcEvalMagic;
}

namespace {

// The words of one file, read one after the other. `end` is where the question says it ends.
class Words {
  public:
    Words(std::string_view bytes, const std::string& where)
        : bytes_(bytes), where_(where), at_(kHeaderBytes), end_(bytes.size()) {}

    size_t at() const { return at_; }
    bool done() const { return at_ == bytes_.size(); }
    void end_at(size_t end) { end_ = end; }

    int word() {
        CHECK(at_ + 2 <= end_ && end_ <= bytes_.size(), Exit::Damaged, "damaged " + where_,
              str("an end at byte ", std::min(end_, bytes_.size())),
              str("more words of the question at byte ", at_));
        uint16_t w;
        std::memcpy(&w, bytes_.data() + at_, sizeof w);
        at_ += sizeof w;
        return w;
    }
    void must(int found, int expected, const char* what) {
        CHECK(found == expected, Exit::Damaged, "damaged " + where_,
              str(what, " ", found, " before byte ", at_), str(expected));
    }
    std::vector<int> ids() {
        std::vector<int> list;
        list.resize(size_t(word()));
        for (int& id : list) id = word();
        return list;
    }

  private:
    std::string_view bytes_;
    const std::string& where_;
    size_t at_, end_;
};

LlmcEvalQuestion question(Words& in, int index) {
    const size_t begin = in.at();
    in.end_at(begin + 4);
    in.must(in.word(), kBegin, "a first word");
    in.end_at(begin + size_t(in.word()));
    // The index is kept in 16 bits, so it wraps in a longer file.
    in.must(in.word(), index & 0xffff, "an index");
    LlmcEvalQuestion q;
    q.label = in.word();
    in.must(in.word(), kChoices, "a number of choices");
    q.context = in.ids();
    for (int c = 0; c < kChoices; c++) q.choices.push_back(in.ids());
    return q;
}

}  // namespace

std::vector<LlmcEvalQuestion> llmc_eval_parse(std::string_view bytes, const std::string& where) {
    CHECK(bytes.size() >= kHeaderBytes && is_llmc_eval(bytes), Exit::Damaged,
          "no evaluation file of llm.c: " + where,
          str("a size of ", counted(int64_t(bytes.size()), "byte")),
          str("a header of ", kHeaderBytes, " bytes with magic ", kLlmcEvalMagic));
    int32_t header[4];
    std::memcpy(header, bytes.data(), sizeof header);
    CHECK(header[1] == kLlmcEvalVersion, Exit::Damaged,
          "an evaluation file of an unknown version: " + where, str("version ", header[1]),
          str("version ", kLlmcEvalVersion));
    std::vector<LlmcEvalQuestion> questions;
    for (Words in(bytes, where); !in.done();) {
        const size_t begin = in.at();
        in.end_at(bytes.size());
        questions.push_back(question(in, int(questions.size())));
        const LlmcEvalQuestion& q = questions.back();
        CHECK(q.label < kChoices && !q.context.empty(), Exit::Damaged, "damaged " + where,
              str("label ", q.label, " and ", q.context.size(),
                  " ids of context in the question at byte ", begin),
              str("a label below ", kChoices, " and one id or more"));
        for (const std::vector<int>& choice : q.choices)
            CHECK(!choice.empty(), Exit::Damaged, "damaged " + where,
                  str("an empty choice in the question at byte ", begin));
        const size_t size = in.at() - begin;
        uint16_t said;
        std::memcpy(&said, bytes.data() + begin + 2, sizeof said);
        CHECK(size == said, Exit::Damaged, "damaged " + where,
              str("a question of ", counted(int64_t(size), "byte"), " at byte ", begin),
              str(said, " as it says"));
    }
    CHECK(int64_t(questions.size()) == header[2] && !questions.empty(), Exit::Damaged,
          "damaged " + where, counted(int64_t(questions.size()), "question"),
          str(header[2], " as the header says, and one at least"));
    return questions;
}
