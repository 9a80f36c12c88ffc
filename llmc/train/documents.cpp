// llmc/train/documents.cpp: cutting a stream of bytes into documents.
#include "llmc/train/documents.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include <nlohmann/json.hpp>

#include "llmc/core/check.h"

DocumentReader::DocumentReader(Setup setup) : setup_(std::move(setup)) {
    CHECK(!setup_.files.empty(), Exit::Usage, "no text files");
    CHECK(setup_.val_fraction >= 0 && setup_.val_fraction < 1, Exit::Usage,
          "a bad fraction for validation", str(setup_.val_fraction), "0 or more and less than 1");
    for (const std::string& file : setup_.files) {
        struct stat info;
        CHECK(stat(file.c_str(), &info) == 0, Exit::Usage, "cannot open text file " + file,
              std::strerror(errno));
        CHECK(S_ISREG(info.st_mode), Exit::Usage, "cannot read text file " + file,
              S_ISDIR(info.st_mode) ? "a directory" : "something not a regular file",
              "a regular file");
        total_ += info.st_size;
    }
    // Without validation it starts where no byte is.
    split_ = setup_.val_fraction > 0 ? total_ - std::llround(setup_.val_fraction * double(total_))
                                     : INT64_MAX;
}

bool DocumentReader::next(TextPart& part) {
    while (!pending().empty() || !at_end_ || file_next())
        if (is_jsonl_ ? line_next(part) : text_next(part)) return true;
    return false;
}

bool DocumentReader::file_next() {
    if (file_ == setup_.files.size()) return false;
    const std::string& path = setup_.files[file_++];
    fd_ = Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    CHECK(fd_ >= 0, Exit::Usage, "cannot open text file " + path, std::strerror(errno));
    is_jsonl_ = path.ends_with(".jsonl");
    want_ = setup_.part_bytes;
    line_ = 0;
    at_end_ = in_document_ = false;
    line_starts_ = true;
    return true;
}

void DocumentReader::fill() {
    buffer_.erase(0, begin_);
    begin_ = 0;
    while (buffer_.size() < want_ && !at_end_) {
        const size_t had = buffer_.size();
        buffer_.resize(want_);
        const ssize_t got = ::read(fd_, buffer_.data() + had, want_ - had);
        buffer_.resize(had + size_t(std::max<ssize_t>(got, 0)));
        if (got < 0 && errno != EINTR) fail_errno("reading", setup_.files[file_ - 1]);
        at_end_ = got == 0;
    }
}

// Moves past n bytes, which are the part's text, and skip bytes that are nobody's.
void DocumentReader::take(size_t n, size_t skip, TextPart& part) {
    part = {std::string(pending().substr(0, n)), !in_document_, validation_, {}};
    if (n + skip > 0) line_starts_ = pending()[n + skip - 1] == '\n';
    in_document_ = true;
    begin_ += n + skip;
    at_ += int64_t(n + skip);
}

bool DocumentReader::text_next(TextPart& part) {
    const std::string& separator = setup_.separator;
    constexpr size_t none = std::string_view::npos;
    while (true) {
        const std::string_view text = pending();
        // Does the document end in what is here? At the start of validation ...
        size_t end = none, skip = 0;
        if (!validation_ && at_ >= split_ && line_starts_) validation_ = true, in_document_ = false;
        if (!validation_ && split_ <= at_ + int64_t(text.size())) {
            const size_t newline = text.find('\n', size_t(std::max<int64_t>(split_ - 1 - at_, 0)));
            if (newline != none) end = newline + 1;
        }
        // ... or at a separator, of which the byte behind must be known: is it alone on its line?
        const size_t sign = separator.empty() ? none : text.substr(0, end).find(separator);
        const size_t behind = sign + separator.size();
        if (sign != none && behind == text.size() && !at_end_) {
            want_ = std::max(want_, text.size() + 1);
            fill();
            continue;
        }
        if (sign != none) {
            const bool line = sign == 0 ? line_starts_ : text[sign - 1] == '\n';
            end = sign;
            skip = separator.size() + (line && behind < text.size() && text[behind] == '\n');
        }
        if (end == none && at_end_) end = text.size();
        if (end != none) {
            take(end, skip, part);
            in_document_ = false;
            return end > 0;
        }
        // It does not, so a piece of it goes now; what may be the start of a separator stays.
        if (text.size() >= want_) {
            const size_t hold = std::min(separator.empty() ? 0 : separator.size() - 1, text.size());
            const size_t cut = setup_.safe_cut(text.substr(0, text.size() - hold));
            want_ = cut > 0 ? setup_.part_bytes : 2 * text.size();
            if (cut > 0) {
                take(cut, 0, part);
                return true;
            }
        }
        fill();
    }
}

bool DocumentReader::line_next(TextPart& part) {
    size_t newline;
    while ((newline = pending().find('\n')) == std::string_view::npos && !at_end_) {
        want_ = std::max(setup_.part_bytes, 2 * pending().size());
        fill();
    }
    const size_t n = std::min(newline, pending().size());
    validation_ = validation_ || at_ >= split_;
    in_document_ = false;
    line_++;
    take(n, newline != std::string_view::npos, part);
    if (part.text.find_first_not_of(" \t\r") == std::string::npos) return false;
    document_read(part);
    return !part.text.empty();
}

// From the line of JSON in part.text to the document that it is.
void DocumentReader::document_read(TextPart& part) const {
    std::string text;
    const auto add = [&](const std::string& more, bool train) {
        if (!train && !more.empty())
            part.untrained.push_back({text.size(), text.size() + more.size()});
        text += more;
    };
    try {
        const nlohmann::json line = nlohmann::json::parse(part.text);
        if (line.contains("prompt") && !line.contains("text")) {
            add(line.at("prompt").get<std::string>(), false);
            add(line.at("completion").get<std::string>(), true);
        } else if (line.contains("parts") && !line.contains("text")) {
            for (const nlohmann::json& p : line.at("parts"))
                add(p.at("text").get<std::string>(), p.at("train").get<bool>());
        } else {
            add(line.at("text").get<std::string>(), true);
        }
    } catch (const nlohmann::json::exception& e) {
        fail(Exit::Damaged, str("no document at ", setup_.files[file_ - 1], ":", line_), e.what(),
             R"(a line such as {"text": "..."} or {"prompt": "...", "completion": "..."})",
             "every line of a .jsonl file is one document");
    }
    part.text = std::move(text);
}
