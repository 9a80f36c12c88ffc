// llmc/io/tokenizer.cpp: what all tokenizers do alike: special tokens and decoding.
#include "llmc/io/tokenizer.h"

#include "llmc/core/check.h"

void Tokenizer::encode(std::string_view text, bool special, std::vector<int>& ids) {
    const auto& specials = vocab_->specials;
    size_t at = 0;
    if (special) {
        std::vector<size_t> next(specials.size()); // where each one comes next, at or after `at`
        for (size_t k = 0; k < next.size(); k++) next[k] = text.find(specials[k].first);
        while (true) {
            size_t first = specials.size(); // the first in the text; of several there, the longest
            for (size_t k = 0; k < next.size(); k++) {
                if (next[k] < at) next[k] = text.find(specials[k].first, at);
                if (next[k] == std::string_view::npos) continue;
                if (first == specials.size() || next[k] < next[first] ||
                    (next[k] == next[first] &&
                     specials[k].first.size() > specials[first].first.size()))
                    first = k;
            }
            if (first == specials.size()) break;
            encode_ordinary(text.substr(at, next[first] - at), ids);
            ids.push_back(specials[first].second);
            at = next[first] + specials[first].first.size();
        }
    }
    encode_ordinary(text.substr(at), ids);
}

std::vector<int> Tokenizer::encode(std::string_view text, bool special) {
    std::vector<int> ids;
    encode(text, special, ids);
    return ids;
}

const std::string& Tokenizer::token_bytes(int id) const {
    CHECK(id >= 0 && id < vocab_size(), Exit::Usage, "no such token in the tokenizer " + name(),
          str("id ", id), str("0 to ", vocab_size() - 1));
    return vocab_->bytes[size_t(id)];
}

std::string Tokenizer::decode(const std::vector<int>& ids) const {
    std::string text;
    for (const int id : ids) text += token_bytes(id);
    return vocab_->space_before_text && text.starts_with(' ') ? text.substr(1) : text;
}
