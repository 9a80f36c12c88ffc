// llmc/io/tokenizer.h: text to token ids and back.
//
// Byte pair encoding of two kinds. Byte-level, as GPT-2, LLaMA 3 and Qwen have it (Radford et al.
// 2019, "Language models are unsupervised multitask learners", section 2.2): text is split into
// pieces by a regular expression, the bytes of each piece are the first tokens, and pairs of
// neighbours merge in the order of a learned list. Without merges it is the plain byte tokenizer.
// Of characters, as LLaMA 2 has it: nothing is split, characters merge, and what has no token is
// spelt in bytes. And sentencepiece's models, by their library.
//
// Every text is legal, valid UTF-8 or not. decode(encode(text)) == text, byte for byte; but Qwen's
// kind brings text into Unicode's normal form C first, and where a space stands for U+2581, so does
// U+2581 for a space.
// Definition: tokenizer_bpe.cpp. Files: tokenizer_json.cpp, tokenizer_files.cpp. Training:
// tokenizer_train.h. Proof: tokenizer_test.cpp, tokenizer_json_test.cpp.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

constexpr const char* kEndOfText = "<|endoftext|>";
constexpr const char* kSpaceSign =
    "\xe2\x96\x81";  // U+2581, which some vocabularies have for a space

using TextIds = std::vector<std::pair<std::string, int>>;  // texts that mean one id

// The ids of a tokenizer and what they stand for.
struct Vocabulary {
    std::vector<std::string> bytes;  // (V) what decoding writes for each id
    TextIds specials;                // texts that mean one id, if asked for
    TextIds added;                   // ... and whether asked for or not
    int eot = -1;                    // what stands before each document; -1: none
    std::vector<int> ends;           // what ends a text that a model writes
    std::string name;                // for people: "byte", "gpt2", "bpe-2048"
    bool space_before_text = false;  // the first token of a text begins with a space of its own
};

// An encoder keeps a cache of words it has seen: one object a thread, clone() makes more.
class Tokenizer {
  public:
    virtual ~Tokenizer() = default;

    const std::string& name() const { return vocab_->name; }
    int vocab_size() const { return int(vocab_->bytes.size()); }
    int eot() const { return vocab_->eot; }
    bool ends_text(int id) const;  // the end of what a model writes; what begins a document, too
    // Does eot() begin texts (LLaMA's <s>), rather than end one and begin the next (<|endoftext|>)?
    bool begins_texts() const;
    std::string special_text(int id) const;  // of a special token: its text; empty for others
    bool space_before_text() const { return vocab_->space_before_text; }

    // Appends the ids of the text. With `special` the texts of special tokens ("<|endoftext|>")
    // become their single ids; without, they are ordinary text.
    void encode(std::string_view text, bool special, std::vector<int>& ids);
    std::vector<int> encode(std::string_view text, bool special = false);

    // The exact bytes of the ids. A list cut in the middle of a character gives a part of it.
    std::string decode(const std::vector<int>& ids) const;
    const std::string& token_bytes(int id) const;  // Usage when there is no such id

    // The largest n for which the text may be cut before byte n: encoding both parts (without
    // special tokens) gives the ids of the whole, whatever follows the text. 0 when no place in it
    // is known to be safe. A text is always safe at its end only if nothing follows.
    virtual size_t safe_cut(std::string_view text) const = 0;

    // The tokenizer as the text of a Hugging Face tokenizer.json, from which tokenizer_from_json
    // makes an equal one. This is what lies beside token files and inside checkpoints.
    virtual std::string json() const = 0;
    virtual std::unique_ptr<Tokenizer> clone() const = 0;

  protected:
    explicit Tokenizer(std::shared_ptr<const Vocabulary> vocab) : vocab_(std::move(vocab)) {}
    // A part of a text that has no special tokens; first: its beginning.
    virtual void encode_ordinary(std::string_view text, bool first, std::vector<int>& ids) = 0;

    std::shared_ptr<const Vocabulary> vocab_;
};

// clang-format off
// spec is "byte" (256 bytes and end-of-text: 257 ids), a folder, or a file:
//     tokenizer.json            Hugging Face's, of the kinds above; our train-bpe's
//     *.model                   sentencepiece's
//     encoder.json + vocab.bpe  OpenAI's GPT-2; also under the names vocab.json + merges.txt
//     tokenizer.bin             llm.c's, which can only decode; llama2.c's
// Usage when there is nothing of the kind, or of a kind that would encode differently from its
// author's program; Damaged when the content is broken, or more than kMaxTokenizerBytes.
// clang-format on
constexpr int64_t kMaxTokenizerBytes = 256 << 20;
std::unique_ptr<Tokenizer> tokenizer_open(const std::string& spec);
// The tokenizer of a model's folder: its tokenizer.json, and if that is missing or refused its
// tokenizer.model, with a note on stderr; without both, a pair of files as above. Null when there
// is none, the first error when none of them can be used.
std::unique_ptr<Tokenizer> tokenizer_in_folder(const std::string& folder);
// `where` is named in errors.
std::unique_ptr<Tokenizer> tokenizer_from_json(const std::string& text, const std::string& where);
