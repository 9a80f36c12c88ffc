// llmc/io/tokenizer_train.h: learning the merges of a byte-level BPE tokenizer.
//
// Sennrich, Haddow, Birch 2016, "Neural machine translation of rare words with subword units",
// arXiv:1508.07909, algorithm 1: again and again, the pair of neighbours that comes most often in
// the text becomes one new token. Words are GPT-2's pieces (tokenizer_bpe.h) with their counts.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "llmc/io/tokenizer_bpe.h"

// Counts the pieces of a text. Pieces of more than kMaxWordBytes teach nothing and are left out.
class WordCounter {
  public:
    static constexpr size_t kMaxWordBytes = 4096;
    // The text ends where gpt2_safe_cut() allows or where the document ends.
    void add(std::string_view text);
    const std::unordered_map<std::string, int64_t>& words() const { return words_; }

  private:
    Splitter splitter_{kGpt2Pattern};
    std::unordered_map<std::string, int64_t> words_;
};

// Ids: the 256 bytes in order, merged tokens in the order they were learned, end-of-text last. Of
// pairs that come equally often the one of smaller ids is first, so the result is a function of the
// counts alone. Stops before vocab_size when no pair comes twice.
BpeModel bpe_train(const std::unordered_map<std::string, int64_t>& words, int vocab_size);
