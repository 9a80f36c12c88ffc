// llmc/io/tokenizer_bpe.cpp: byte-level BPE encoding.
#include "llmc/io/tokenizer_bpe.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <queue>
#include <unordered_map>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <xxhash.h>

#include "llmc/core/check.h"
#include "llmc/core/hash.h"

// ---- splitting

size_t utf8_valid_prefix(std::string_view text) {
    const auto* s = reinterpret_cast<const unsigned char*>(text.data());
    const size_t n = text.size();
    size_t i = 0;
    while (i < n) {
        if (s[i] < 0x80) {
            i++;
            continue;
        }
        // Length by the first byte; the second byte's range excludes overlong forms, surrogates and
        // what lies above U+10FFFF.
        const unsigned char c = s[i];
        const size_t length = c >= 0xc2 && c <= 0xdf   ? 2
                              : c >= 0xe0 && c <= 0xef ? 3
                              : c >= 0xf0 && c <= 0xf4 ? 4
                                                       : 0;
        if (length == 0 || n - i < length) return i;
        const unsigned char low = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
        const unsigned char high = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
        if (s[i + 1] < low || s[i + 1] > high) return i;
        for (size_t k = 2; k < length; k++)
            if ((s[i + k] & 0xc0) != 0x80) return i;
        i += length;
    }
    return n;
}

Splitter::Splitter(const std::string& pattern) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    pcre2_code* code =
        pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                      PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &error, &offset, nullptr);
    CHECK(code, Exit::Usage, "cannot compile the splitting pattern of a tokenizer",
          str("PCRE2 error ", error, " at ", offset));
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE); // where it fails, the interpreter does the same
    code_ =
        std::shared_ptr<void>(code, [](void* p) { pcre2_code_free(static_cast<pcre2_code*>(p)); });
}

size_t Splitter::match_end(std::string_view valid, size_t at) const {
    // One match's scratch memory for each thread, for the life of the thread.
    thread_local const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> match(
        pcre2_match_data_create(1, nullptr), pcre2_match_data_free);
    const int rc = pcre2_match(static_cast<const pcre2_code*>(code_.get()),
                               reinterpret_cast<PCRE2_SPTR>(valid.data()), valid.size(), at,
                               PCRE2_NO_UTF_CHECK, match.get(), nullptr);
    CHECK(rc >= 0, Exit::Resource, "cannot split text", str("PCRE2 error ", rc));
    const size_t end = pcre2_get_ovector_pointer(match.get())[1];
    assert(end > at);
    return end;
}

size_t gpt2_safe_cut(std::string_view text) {
    // No piece holds white space after something else, and no rule looks back. A byte that may be
    // the last of a white space character outside ASCII (U+0085 to U+3000) is taken for one.
    const auto may_end_white_space = [](unsigned char c) {
        return c <= 0x20 || (c >= 0x80 && c <= 0x8a) || c == 0x9f || c == 0xa0 || c == 0xa8 ||
               c == 0xa9 || c == 0xaf;
    };
    for (size_t i = text.size(); i-- > 1;) {
        const char c = text[i];
        if ((c == ' ' || c == '\n' || c == '\t' || c == '\r') &&
            !may_end_white_space(uint8_t(text[i - 1])))
            return i;
    }
    return 0;
}

// ---- model

// GPT-2's vocabulary is known by the digest of its tokens, each closed by a zero byte.
constexpr const char* kGpt2Digest = "3276267f42efd76fad61774450c8691b";

void bpe_complete(BpeModel& model, const std::string& where) {
    Vocabulary& vocab = model.vocab;
    Digest digest;
    model.byte_id.fill(-1);
    for (size_t id = 0; id < vocab.bytes.size(); id++) {
        const std::string& bytes = vocab.bytes[id];
        if (bytes.size() == 1) model.byte_id[uint8_t(bytes[0])] = int(id);
        digest.update(bytes.c_str(), bytes.size() + 1);
    }
    for (size_t b = 0; b < 256; b++)
        CHECK(model.byte_id[b] >= 0, Exit::Damaged, str("no token for byte ", b, " in ", where), "",
              "a byte-level vocabulary, which has all 256 bytes");
    for (const auto& [text, id] : vocab.specials)
        if (text == kEndOfText) vocab.eot = id;
    vocab.name = model.merges.empty()          ? "byte"
                 : digest.hex() == kGpt2Digest ? "gpt2"
                                               : str("bpe-", vocab.bytes.size());
}

BpeModel byte_model() {
    BpeModel model;
    for (int b = 0; b < 256; b++) model.vocab.bytes.push_back(std::string(1, char(b)));
    model.vocab.bytes.push_back(kEndOfText);
    model.vocab.specials = {{kEndOfText, 256}};
    bpe_complete(model, "byte");
    return model;
}

// ---- encoding

namespace {

// What all clones of a tokenizer share.
struct BpeTables {
    BpeModel model;
    std::unordered_map<uint64_t, uint32_t> rank; // (left, right) -> index in model.merges
    Splitter splitter{kGpt2Pattern};

    explicit BpeTables(BpeModel m) : model(std::move(m)) {
        rank.reserve(model.merges.size());
        for (size_t r = 0; r < model.merges.size(); r++)
            rank.emplace(pair(model.merges[r].left, model.merges[r].right), uint32_t(r));
    }
    static uint64_t pair(int left, int right) { return uint64_t(left) << 32 | uint32_t(right); }
};

// Merges the neighbours of one piece. The symbols are a linked list over the piece's bytes; a heap
// holds the pairs that can merge, the most urgent first, from left to right among equals. So n
// bytes take O(n log n), however long the piece is.
class Merger {
  public:
    void append(const BpeTables& tables, std::string_view piece, std::vector<int>& ids) {
        CHECK(piece.size() < UINT32_MAX, Exit::Resource, "a word too long for the tokenizer",
              str(piece.size(), " bytes without a break"));
        const uint32_t n = uint32_t(piece.size());
        id_.resize(n), next_.resize(n), previous_.resize(n);
        for (uint32_t i = 0; i < n; i++) {
            id_[i] = tables.model.byte_id[uint8_t(piece[i])];
            next_[i] = i + 1; // n: none
            previous_[i] = i - 1;
        }
        for (uint32_t i = 0; i + 1 < n; i++) offer(tables, i, n);
        while (!heap_.empty()) {
            const BpeMerge& merge = tables.model.merges[heap_.top() >> 32];
            const uint32_t i = uint32_t(heap_.top()), right = next_[i];
            heap_.pop();
            // Earlier merges may have taken one of the two symbols away.
            if (id_[i] != merge.left || right >= n || id_[right] != merge.right) continue;
            id_[i] = merge.merged;
            id_[right] = -1;
            next_[i] = next_[right];
            if (next_[i] < n) previous_[next_[i]] = i;
            if (i > 0) offer(tables, previous_[i], n);
            offer(tables, i, n);
        }
        for (uint32_t i = 0; i < n; i = next_[i]) ids.push_back(id_[i]);
    }

  private:
    void offer(const BpeTables& tables, uint32_t i, uint32_t n) {
        if (next_[i] >= n) return;
        const auto found = tables.rank.find(BpeTables::pair(id_[i], id_[next_[i]]));
        if (found != tables.rank.end()) heap_.push(uint64_t(found->second) << 32 | i);
    }

    std::vector<int> id_;
    std::vector<uint32_t> next_, previous_;
    std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> heap_; // rank, position
};

// Words and their ids, so that a word is merged once and then copied: English text finds 94 to 98%
// of its words here. A word has one place, and the last word to come takes it: memory is bounded.
class WordCache {
  public:
    // Appends the ids of the piece; merge(ids) computes them when they are not here.
    template <class Merge>
    void append(std::string_view piece, std::vector<int>& ids, Merge merge) {
        Slot* slot = nullptr;
        if (piece.size() <= sizeof slot->bytes) {
            slot = &slots_[XXH3_64bits(piece.data(), piece.size()) % kSlots];
            if (slot->length == piece.size() &&
                std::memcmp(slot->bytes, piece.data(), piece.size()) == 0) {
                ids.insert(ids.end(), slot->ids, slot->ids + slot->count);
                return;
            }
        }
        const size_t before = ids.size();
        merge(ids);
        const size_t count = ids.size() - before;
        if (!slot || count > std::size(slot->ids)) return;
        slot->length = uint8_t(piece.size());
        slot->count = uint8_t(count);
        std::memcpy(slot->bytes, piece.data(), piece.size());
        std::copy(ids.end() - std::ptrdiff_t(count), ids.end(), slot->ids);
    }

  private:
    static constexpr size_t kSlots = 1 << 16;
    struct Slot {
        uint8_t length = 0, count = 0;
        char bytes[30];
        int ids[8];
    };
    static_assert(sizeof(Slot) == 64, "one cache line: 4 MiB in all");
    std::vector<Slot> slots_ = std::vector<Slot>(kSlots);
};

class BpeTokenizer : public Tokenizer {
  public:
    explicit BpeTokenizer(std::shared_ptr<const BpeTables> tables)
        : Tokenizer({tables, &tables->model.vocab}), tables_(tables) {}

    size_t safe_cut(std::string_view text) const override {
        return tables_->model.merges.empty() ? text.size() : gpt2_safe_cut(text);
    }
    std::string json() const override { return bpe_to_json(tables_->model); }
    std::unique_ptr<Tokenizer> clone() const override {
        return std::make_unique<BpeTokenizer>(tables_);
    }

  protected:
    void encode_ordinary(std::string_view text, std::vector<int>& ids) override {
        if (tables_->model.merges.empty()) {
            for (const char c : text) ids.push_back(tables_->model.byte_id[uint8_t(c)]);
            return;
        }
        tables_->splitter.split(text, [&](std::string_view piece) {
            cache_.append(piece, ids,
                          [&](std::vector<int>& to) { merger_.append(*tables_, piece, to); });
        });
    }

  private:
    std::shared_ptr<const BpeTables> tables_;
    Merger merger_;
    WordCache cache_;
};

} // namespace

std::unique_ptr<Tokenizer> bpe_tokenizer(BpeModel model) {
    return std::make_unique<BpeTokenizer>(std::make_shared<const BpeTables>(std::move(model)));
}
