// llmc/io/tokenizer_bpe.cpp: BPE encoding.
#include "llmc/io/tokenizer_bpe.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>
#include <queue>
#include <unordered_map>

#include <xxhash.h>

#include "llmc/core/check.h"
#include "llmc/core/hash.h"

// ---- model

// GPT-2's vocabulary is known by the digest of its tokens, each closed by a zero byte.
constexpr const char* kGpt2Digest = "3276267f42efd76fad61774450c8691b";

// Special tokens that end what a model says: of GPT-2 and Qwen, of LLaMA 3, of LLaMA 2.
static bool ends_text(const std::string& special) {
    for (const char* name : {kEndOfText, "<|im_end|>", "<|end_of_text|>", "<|eot_id|>", "</s>"})
        if (special == name) return true;
    return false;
}

// Id of each byte: in a byte-level model the token that is this byte, in a character model the
// token written <0xNN>.
static void find_bytes(BpeModel& model, const std::string& where) {
    model.byte_id.fill(-1);
    for (size_t id = 0; id < model.vocab.bytes.size() && !model.rules.characters; id++) {
        const std::string& bytes = model.vocab.bytes[id];
        if (bytes.size() == 1) model.byte_id[uint8_t(bytes[0])] = int(id);
    }
    for (size_t b = 0; b < 256; b++) {
        if (model.rules.characters) {
            const auto found = model.id_of.find(byte_token(uint8_t(b)));
            if (found != model.id_of.end()) model.byte_id[b] = found->second;
        }
        CHECK(model.byte_id[b] >= 0, Exit::Damaged, str("no token for byte ", b, " in ", where), "",
              "a vocabulary with all 256 bytes");
    }
}

void bpe_complete(BpeModel& model, const std::string& where) {
    Vocabulary& vocab = model.vocab;
    Digest digest;
    for (const std::string& bytes : vocab.bytes) digest.update(bytes.c_str(), bytes.size() + 1);
    find_bytes(model, where);
    for (const auto& [text, id] : vocab.specials) {
        if (text == kEndOfText && vocab.eot < 0) vocab.eot = id;
        if (ends_text(text)) vocab.ends.push_back(id);
    }
    vocab.name = model.merges.empty()          ? "byte"
                 : digest.hex() == kGpt2Digest ? "gpt2"
                                               : str("bpe-", vocab.bytes.size());
}

std::string byte_token(uint8_t byte) {
    char text[8];
    std::snprintf(text, sizeof text, "<0x%02X>", byte);
    return text;
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
    std::unordered_map<uint64_t, uint32_t> rank;  // (left, right) -> index in model.merges
    std::optional<Splitter> splitter;             // where there is something to split by

    explicit BpeTables(BpeModel m) : model(std::move(m)) {
        if (!model.rules.pattern.empty()) splitter.emplace(model.rules.pattern);
        rank.reserve(model.merges.size());
        for (size_t r = 0; r < model.merges.size(); r++)
            rank.emplace(pair(model.merges[r].left, model.merges[r].right), uint32_t(r));
    }
    static uint64_t pair(int left, int right) { return uint64_t(left) << 32 | uint32_t(right); }
};

// Merges the neighbours of one piece. The symbols are a linked list over the piece; a heap holds
// the pairs that can merge, the most urgent first, from left to right among equals. So n bytes take
// O(n log n), however long the piece is.
class Merger {
  public:
    void append(const BpeTables& tables, std::string_view piece, std::vector<int>& ids) {
        CHECK(piece.size() < UINT32_MAX, Exit::Resource, "a word too long for the tokenizer",
              str(piece.size(), " bytes without a break"));
        first_tokens(tables.model, piece);
        const uint32_t n = uint32_t(id_.size());
        next_.resize(n), previous_.resize(n);
        for (uint32_t i = 0; i < n; i++) {
            next_[i] = i + 1;  // n: none
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
    // id_ = the piece's bytes, or its characters and the bytes of those that have no token.
    void first_tokens(const BpeModel& model, std::string_view piece) {
        id_.clear();
        size_t known = 0;  // up to here the piece is well-formed UTF-8
        for (size_t at = 0, n; at < piece.size(); at += n) {
            n = 1;
            if (model.rules.characters) {
                if (known <= at) known = at + utf8_valid_prefix(piece.substr(at));
                while (at + n < known && (piece[at + n] & 0xc0) == 0x80) n++;
                const auto found = model.id_of.find(std::string(piece.substr(at, n)));
                if (known > at && found != model.id_of.end()) {
                    id_.push_back(found->second);
                    continue;
                }
            }
            for (const char c : piece.substr(at, n)) id_.push_back(model.byte_id[uint8_t(c)]);
        }
    }

    void offer(const BpeTables& tables, uint32_t i, uint32_t n) {
        if (next_[i] >= n) return;
        const auto found = tables.rank.find(BpeTables::pair(id_[i], id_[next_[i]]));
        if (found != tables.rank.end()) heap_.push(uint64_t(found->second) << 32 | i);
    }

    std::vector<int> id_;
    std::vector<uint32_t> next_, previous_;
    std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> heap_;  // rank, position
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
        if (plain_bytes()) return text.size();
        return rules().safe_cut ? rules().safe_cut(text) : 0;
    }
    std::string json() const override { return bpe_to_json(tables_->model); }
    std::unique_ptr<Tokenizer> clone() const override {
        return std::make_unique<BpeTokenizer>(tables_);
    }

  protected:
    void encode_ordinary(std::string_view text, bool first, std::vector<int>& ids) override {
        if (plain_bytes()) {
            for (const char c : text) ids.push_back(tables_->model.byte_id[uint8_t(c)]);
            return;
        }
        if (rules().characters || rules().nfc) {
            changed_.clear();
            if (rules().nfc)
                nfc_append(changed_, text);
            else
                append_signed(changed_, text, first);
            text = changed_;
        }
        if (!tables_->splitter) {
            if (!text.empty()) encode_piece(text, ids);
            return;
        }
        tables_->splitter->split(text, [&](std::string_view piece) {
            cache_.append(piece, ids, [&](std::vector<int>& to) { encode_piece(piece, to); });
        });
    }

  private:
    const BpeRules& rules() const { return tables_->model.rules; }
    bool plain_bytes() const { return tables_->model.merges.empty() && !rules().characters; }

    void encode_piece(std::string_view piece, std::vector<int>& ids) {
        if (rules().whole_pieces) {
            const auto found = tables_->model.id_of.find(std::string(piece));
            if (found != tables_->model.id_of.end()) return ids.push_back(found->second);
        }
        merger_.append(*tables_, piece, ids);
    }

    // Spaces as their sign, one more before the text where the model puts it.
    void append_signed(std::string& to, std::string_view text, bool first) const {
        if (text.empty()) return;
        const SpacePrefix prefix = rules().prefix;
        const bool there = text.starts_with(' ') || text.starts_with(kSpaceSign);
        if (prefix == SpacePrefix::Each || (prefix == SpacePrefix::EachUnlessThere && !there) ||
            (prefix == SpacePrefix::FirstUnlessThere && first && !there))
            to += kSpaceSign;
        for (const char c : text) c == ' ' ? to += kSpaceSign : to += c;
    }

  private:
    std::shared_ptr<const BpeTables> tables_;
    Merger merger_;
    WordCache cache_;
    std::string changed_;  // the text as the rules change it
};

}  // namespace

std::unique_ptr<Tokenizer> bpe_tokenizer(BpeModel model) {
    return std::make_unique<BpeTokenizer>(std::make_shared<const BpeTables>(std::move(model)));
}
