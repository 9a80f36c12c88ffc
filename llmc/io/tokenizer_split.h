// llmc/io/tokenizer_split.h: how byte-level tokenizers cut a text into pieces before anything
// merges: patterns, of GPT-2 and of Hugging Face's files, and Unicode's normal form C.
#pragma once
#include <algorithm>
#include <memory>
#include <string>
#include <string_view>

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

// The patterns in the tokenizer.json of LLaMA 3 (and of GPT-4: contractions in any case, digits by
// threes, a word takes one sign before it along) and of Qwen 2 to 3 (digits one by one).
constexpr const char* kLlama3Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2Regex = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
                                    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// The pattern of a tokenizer.json, which is written for Oniguruma, as one for PCRE2 that matches
// the same. Usage, naming the construct, for one that the two understand differently or that no
// tokenizer we know of has: only what is listed in the source is let through.
std::string pattern_from_regex(const std::string& regex, const std::string& where);

// Number of bytes at the start of the text that are well-formed UTF-8 (Unicode 15, table 3-7).
size_t utf8_valid_prefix(std::string_view text);

// Cuts text into the pieces that a pattern matches one after the other; what it does not match, up
// to the next match, is a piece too. Bytes that are not well-formed UTF-8 are pieces of their own,
// one each, and what lies between them is split as if it stood alone. The compiled pattern is
// shared by copies; a copy works on one thread at a time.
class Splitter {
  public:
    explicit Splitter(const std::string& pattern);

    template <class Visit>  // visit(std::string_view piece)
    void split(std::string_view text, Visit visit) const {
        while (!text.empty()) {
            const std::string_view valid = text.substr(0, utf8_valid_prefix(text));
            for (size_t at = 0, end; at < valid.size(); at = end) {
                end = piece_end(valid, at);
                visit(valid.substr(at, end - at));
            }
            if (valid.size() < text.size()) visit(text.substr(valid.size(), 1));
            text.remove_prefix(std::min(valid.size() + 1, text.size()));
        }
    }

  private:
    size_t piece_end(std::string_view valid, size_t at) const;  // > at

    std::shared_ptr<void> here_, anywhere_;  // pcre2_code: matching at a place, or behind it
};

// The last place in the text where GPT-2's pattern ends a piece whatever comes before and after: in
// front of ASCII white space that follows something else. 0 when there is none.
size_t gpt2_safe_cut(std::string_view text);
// The same for LLaMA 3's and Qwen's: signs take line breaks behind them along, so only in front of
// a space or tab.
size_t space_safe_cut(std::string_view text);

// Appends the text in Unicode's normal form C (Unicode Standard Annex 15), by the utf8proc library,
// which is looked for at run time. Bytes that are not well-formed stay as they are.
void nfc_append(std::string& to, std::string_view text);
// Resource, naming what needs it, where the library is not there.
void nfc_check(const std::string& where);
