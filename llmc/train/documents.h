// llmc/train/documents.h: text files as a stream of documents, in bounded memory.
//
// A text file is one document, or several with a separator between them: a separator alone on its
// line takes the whole line away, elsewhere just itself. A .jsonl file has a document a line; empty
// lines are passed over. Empty documents are left out. A line's document is
//     {"text": "..."}                                     all of it to be trained on, or
//     {"prompt": "...", "completion": "..."}              one after the other, the second alone, or
//     {"parts": [{"text": "...", "train": true}, ...]}    one after the other, as each says
//
// Validation text is the end of the input. With `size` bytes in all files, in their order, it
// starts at the first line that begins at or after byte size - round(val_fraction * size). A
// document that this place lies in is cut there, between two lines; a line of .jsonl is a whole
// document.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/io/files.h"  // Fd

// A document, or a piece of a long one.
struct TextPart {
    std::string text;  // not empty
    bool begins_document = false;
    bool validation = false;
    struct Range {
        size_t begin, end;
    };
    std::vector<Range> untrained = {};  // bytes of text that are there to be read only, in order
};

class DocumentReader {
  public:
    struct Setup {
        std::vector<std::string> files;
        double val_fraction = 0;
        std::string separator;  // empty: none
        // Where a document may be cut: Tokenizer::safe_cut.
        std::function<size_t(std::string_view)> safe_cut;
        size_t part_bytes = 1 << 20;  // pieces are about this long, and longer where no cut is safe
    };
    // Looks at every file first: Usage if one is missing or is not a regular file.
    explicit DocumentReader(Setup setup);

    // The next part, false at the end. Damaged, naming file and line, for a line of .jsonl that has
    // no text.
    bool next(TextPart& part);

    int64_t bytes_total() const { return total_; }
    int64_t bytes_read() const { return at_; }

  private:
    bool file_next();
    void fill();
    bool text_next(TextPart& part);
    bool line_next(TextPart& part);
    void document_read(TextPart& part) const;
    void take(size_t n, size_t skip, TextPart& part);
    std::string_view pending() const { return std::string_view(buffer_).substr(begin_); }

    Setup setup_;
    int64_t total_ = 0, split_ = 0;  // bytes of all files; where validation may start

    size_t file_ = 0;  // files opened so far; the last of them is being read
    Fd fd_;
    bool is_jsonl_ = false;
    int64_t line_ = 0;    // of a .jsonl file
    std::string buffer_;  // what was read of the file; before begin_ it is used up
    size_t begin_ = 0;
    size_t want_ = 0;     // fill() reads until so much is pending
    bool at_end_ = true;  // nothing is left in the file but what is pending

    int64_t at_ = 0;  // place of pending() in all files
    bool line_starts_ = true, in_document_ = false, validation_ = false;  // at that place
};
