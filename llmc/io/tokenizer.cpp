// llmc/io/tokenizer.cpp: what all tokenizers do alike: special tokens and decoding.
#include "llmc/io/tokenizer.h"

#include <algorithm>

#include "llmc/core/check.h"

void Tokenizer::encode(std::string_view text, bool special, std::vector<int>& ids) {
    size_t at = 0;
    if (const size_t n = vocab_->added.size() + (special ? vocab_->specials.size() : 0)) {
        const auto text_id = [&](size_t k) -> const TextIds::value_type& {
            const size_t added = vocab_->added.size();
            return k < added ? vocab_->added[k] : vocab_->specials[k - added];
        };
        const auto length = [&](size_t k) { return text_id(k).first.size(); };
        std::vector<size_t> next(n);  // where each one comes next, at or after `at`
        for (size_t k = 0; k < n; k++) next[k] = text.find(text_id(k).first);
        while (true) {
            size_t first = n;  // the first in the text; of several there, the longest
            for (size_t k = 0; k < n; k++) {
                if (next[k] < at) next[k] = text.find(text_id(k).first, at);
                if (next[k] == std::string_view::npos) continue;
                if (first == n || next[k] < next[first] ||
                    (next[k] == next[first] && length(k) > length(first)))
                    first = k;
            }
            if (first == n) break;
            encode_ordinary(text.substr(at, next[first] - at), at == 0, ids);
            ids.push_back(text_id(first).second);
            at = next[first] + length(first);
        }
    }
    encode_ordinary(text.substr(at), at == 0, ids);
}

std::vector<int> Tokenizer::encode(std::string_view text, bool special) {
    std::vector<int> ids;
    encode(text, special, ids);
    return ids;
}

bool Tokenizer::ends_text(int id) const {
    return id == vocab_->eot ||
           std::find(vocab_->ends.begin(), vocab_->ends.end(), id) != vocab_->ends.end();
}

bool Tokenizer::begins_texts() const {
    return eot() >= 0 &&
           std::find(vocab_->ends.begin(), vocab_->ends.end(), eot()) == vocab_->ends.end();
}

std::string Tokenizer::special_text(int id) const {
    for (const TextIds* list : {&vocab_->specials, &vocab_->added})
        for (const auto& [text, special] : *list)
            if (special == id) return text;
    return "";
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
