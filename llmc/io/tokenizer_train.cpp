// llmc/io/tokenizer_train.cpp: counting pairs and merging the most frequent, with a heap.
#include "llmc/io/tokenizer_train.h"

#include <algorithm>
#include <queue>
#include <utility>

#include "llmc/core/check.h"
#include "llmc/parallel/liveness.h"

void WordCounter::add(std::string_view text) {
    splitter_.split(text, [&](std::string_view piece) {
        if (piece.size() <= kMaxWordBytes) words_[std::string(piece)]++;
    });
}

namespace {

// The words as lists of ids, and for each pair of neighbours how often it comes and in which words.
class BpeTrainer {
  public:
    explicit BpeTrainer(const std::unordered_map<std::string, int64_t>& words) {
        for (const auto& [text, count] : words) {
            words_.push_back({{}, count});
            for (const char c : text) words_.back().ids.push_back(uint8_t(c));
        }
        for (uint32_t w = 0; w < words_.size(); w++) {
            pairs_count(words_[w], +1);
            for (size_t i = 0; i + 1 < words_[w].ids.size(); i++) pair_at(w, i).words.push_back(w);
        }
        for (const auto& [key, pair] : pairs_) queue_.push({pair.count, ~key});
    }

    // The most frequent pair; false when none comes twice.
    bool best(int& left, int& right) {
        while (!queue_.empty()) {
            const auto [count, inverted] = queue_.top();
            queue_.pop();
            // Counts sink while their entries wait: an old entry goes back with today's count.
            const int64_t now = pairs_[~inverted].count;
            left = int(~inverted >> 32), right = int(uint32_t(~inverted));
            if (now == count) return now >= 2;
            queue_.push({now, inverted});
        }
        return false;
    }

    // Replaces the pair by the new id in all words.
    void merge(int left, int right, int merged) {
        std::vector<uint64_t> grown;
        const std::vector<uint32_t> in_words = std::move(pairs_[key(left, right)].words);
        for (const uint32_t w : in_words) {
            std::vector<int>& ids = words_[w].ids;
            pairs_count(words_[w], -1);
            size_t n = 0;
            for (size_t i = 0; i < ids.size(); n++) {
                const bool here = i + 1 < ids.size() && ids[i] == left && ids[i + 1] == right;
                ids[n] = here ? merged : ids[i];
                i += here ? 2 : 1;
            }
            ids.resize(n);
            pairs_count(words_[w], +1);
            // Only pairs with the new id can be new to a word.
            for (size_t i = 0; i + 1 < n; i++) {
                if (ids[i] != merged && ids[i + 1] != merged) continue;
                pair_at(w, i).words.push_back(w);
                grown.push_back(key(ids[i], ids[i + 1]));
            }
        }
        std::sort(grown.begin(), grown.end());
        grown.erase(std::unique(grown.begin(), grown.end()), grown.end());
        for (const uint64_t k : grown) queue_.push({pairs_[k].count, ~k});
    }

  private:
    struct Word {
        std::vector<int> ids;
        int64_t count;
    };
    struct Pair {
        int64_t count = 0;
        std::vector<uint32_t> words;  // that have or had it; some more than once
    };

    static uint64_t key(int left, int right) { return uint64_t(left) << 32 | uint32_t(right); }
    Pair& pair_at(uint32_t w, size_t i) {
        return pairs_[key(words_[w].ids[i], words_[w].ids[i + 1])];
    }
    void pairs_count(const Word& word, int sign) {
        for (size_t i = 0; i + 1 < word.ids.size(); i++)
            pairs_[key(word.ids[i], word.ids[i + 1])].count += sign * word.count;
    }

    std::vector<Word> words_;
    std::unordered_map<uint64_t, Pair> pairs_;
    // (count, ~key): the most frequent on top, of several the one with the smallest ids.
    std::priority_queue<std::pair<int64_t, uint64_t>> queue_;
};

}  // namespace

BpeModel bpe_train(const std::unordered_map<std::string, int64_t>& words, int vocab_size) {
    CHECK(vocab_size >= 257, Exit::Usage, "a vocabulary too small for bytes", str(vocab_size),
          "257 or more: 256 bytes and end-of-text");
    BpeModel model;
    auto& bytes = model.vocab.bytes;
    for (int b = 0; b < 256; b++) bytes.push_back(std::string(1, char(b)));
    BpeTrainer trainer(words);
    int left, right;
    while (int(bytes.size()) < vocab_size - 1 && trainer.best(left, right)) {
        const int merged = int(bytes.size());
        model.merges.push_back({left, right, merged});
        bytes.push_back(bytes[size_t(left)] + bytes[size_t(right)]);
        trainer.merge(left, right, merged);
        liveness_mark();
    }
    model.vocab.specials = {{kEndOfText, int(bytes.size())}};
    bytes.push_back(kEndOfText);
    bpe_complete(model, "train-bpe");
    return model;
}
