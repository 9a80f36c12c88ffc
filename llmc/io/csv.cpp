#include "llmc/io/csv.h"

#include <algorithm>

#include "llmc/core/check.h"

namespace {

class CsvReader {
  public:
    CsvReader(std::string_view text, const std::string& where) : text_(text), where_(where) {}

    bool next(CsvRecord& record) {
        while (line_end()) {
        }
        if (at_ == text_.size()) return false;
        record = {{}, line_};
        do record.fields.push_back(at_ < text_.size() && text_[at_] == '"' ? quoted() : plain());
        while (comma());
        line_end();
        return true;
    }

  private:
    bool comma() {
        const bool is = at_ < text_.size() && text_[at_] == ',';
        at_ += is;
        return is;
    }
    // Takes one line end, if there is one here.
    bool line_end() {
        const std::string_view rest = text_.substr(at_);
        const size_t n = rest.starts_with('\n') ? 1 : rest.starts_with("\r\n") ? 2 : 0;
        at_ += n;
        line_ += n > 0;
        return n > 0;
    }
    bool at_end_of_field() const {
        return at_ == text_.size() || text_[at_] == ',' || text_[at_] == '\n' ||
               text_.substr(at_, 2) == "\r\n";
    }

    std::string plain() {
        const size_t begin = at_;
        while (!at_end_of_field()) at_++;
        return std::string(text_.substr(begin, at_ - begin));
    }
    std::string quoted() {
        const int line = line_;
        std::string field;
        for (at_++;; at_++) {
            CHECK(at_ < text_.size(), Exit::Damaged, "damaged " + where_,
                  str("a quote that opens on line ", line, " and is never closed"));
            if (text_[at_] == '"' && text_.substr(at_, 2) != "\"\"") break;
            at_ += text_[at_] == '"';
            line_ += text_[at_] == '\n';
            field += text_[at_];
        }
        at_++;
        CHECK(at_end_of_field(), Exit::Damaged, "damaged " + where_,
              str("text behind a closing quote on line ", line_), "a comma or the end of the line");
        return field;
    }

    std::string_view text_;
    const std::string& where_;
    size_t at_ = 0;
    int line_ = 1;
};

}  // namespace

std::vector<CsvRecord> csv_parse(std::string_view text, const std::string& where) {
    CsvReader reader(text, where);
    std::vector<CsvRecord> records;
    for (CsvRecord record; reader.next(record);) records.push_back(std::move(record));
    return records;
}
