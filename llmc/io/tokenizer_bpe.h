// llmc/io/tokenizer_bpe.h: byte-level BPE, its parts: splitting, merging, the tables of a model.
#pragma once
#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/io/tokenizer.h"

// ---- splitting

// GPT-2's pattern (openai/gpt-2, src/encoder.py): contractions, then runs of letters, of digits and
// of other signs, each with one space before it, then white space. Of white space before a word the
// last character is left, so that a word's space goes with the word.
// \s is written out as Unicode's White_Space: what \s means differs between programs (PCRE2 adds
// U+180E, JavaScript U+FEFF), and a single character of difference changes ids.
#define LLMC_WHITE_SPACE                                                                    \
    "\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}" \
    "\\x{205f}\\x{3000}"
constexpr const char* kGpt2Pattern =
    "'s|'t|'re|'ve|'m|'ll|'d"
    "| ?\\p{L}+| ?\\p{N}+| ?[^" LLMC_WHITE_SPACE
    "\\p{L}\\p{N}]+"
    "|[" LLMC_WHITE_SPACE "]+(?![^" LLMC_WHITE_SPACE "])|[" LLMC_WHITE_SPACE "]+";

// Number of bytes at the start of the text that are well-formed UTF-8 (Unicode 15, table 3-7).
size_t utf8_valid_prefix(std::string_view text);

// Cuts text into the pieces that a pattern matches one after the other. Bytes that are not
// well-formed UTF-8 are pieces of their own, one each, and what lies between them is split as if it
// stood alone. The compiled pattern is shared by copies; a copy works on one thread at a time.
class Splitter {
  public:
    explicit Splitter(const std::string& pattern);

    template <class Visit> // visit(std::string_view piece)
    void split(std::string_view text, Visit visit) const {
        while (!text.empty()) {
            const std::string_view valid = text.substr(0, utf8_valid_prefix(text));
            for (size_t at = 0, end; at < valid.size(); at = end) {
                end = match_end(valid, at);
                visit(valid.substr(at, end - at));
            }
            if (valid.size() < text.size()) visit(text.substr(valid.size(), 1));
            text.remove_prefix(std::min(valid.size() + 1, text.size()));
        }
    }

  private:
    size_t match_end(std::string_view valid, size_t at) const; // > at

    std::shared_ptr<void> code_; // pcre2_code
};

// The last place in the text where GPT-2's pattern ends a piece whatever comes before and after: in
// front of ASCII white space that follows something else. 0 when there is none.
size_t gpt2_safe_cut(std::string_view text);

// ---- model

struct BpeMerge {
    int left, right; // ids of neighbours
    int merged;      // the id that replaces them
};

struct BpeModel {
    Vocabulary vocab;             // has a token for each single byte
    std::vector<BpeMerge> merges; // the most urgent first
    std::array<int, 256> byte_id; // (256) id of each single byte, set by bpe_complete
};

// Derives byte_id, vocab.eot and vocab.name from the rest. Damaged, naming `where`, if a byte has
// no token.
void bpe_complete(BpeModel& model, const std::string& where);

// The model of the byte tokenizer: no merges, id b is byte b, 256 is end-of-text.
BpeModel byte_model();

std::unique_ptr<Tokenizer> bpe_tokenizer(BpeModel model);

// ---- files (tokenizer_files.cpp)

// Byte-level files write bytes as printable characters: 33..126, 161..172, 174..255 as the
// character of that number, the others as the characters from 256 on (space is U+0120). Returns
// the bytes' characters as UTF-8.
std::string bytes_to_printable(std::string_view bytes);
// False where the text has a character that stands for no byte.
bool printable_to_bytes(std::string_view printable, std::string& bytes);

std::string bpe_to_json(const BpeModel& model);
