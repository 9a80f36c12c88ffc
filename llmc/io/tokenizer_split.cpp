// llmc/io/tokenizer_split.cpp: splitting by PCRE2, normal form C by utf8proc.
#include "llmc/io/tokenizer_split.h"

#include <dlfcn.h>
#include <sys/types.h>

#include <cassert>
#include <cstdlib>
#include <cstring>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "llmc/core/check.h"

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

// ---- patterns of tokenizer.json

namespace {

// One pass over the regular expression. Let through: characters, | ( ) (?: (?i: (?= (?!, classes of
// characters, ranges and the escapes below, ? * + and {n}, {n,m} with ? + behind the former.
class RegexReader {
  public:
    RegexReader(const std::string& regex, const std::string& where) : s_(regex), where_(where) {}

    std::string pattern() {
        while (at_ < s_.size()) {
            const char c = s_[at_];
            if (c == '\\')
                escape(false);
            else if (c == '[')
                character_class();
            else if (c == '(')
                group();
            else if (c == '{')
                count();
            else if (std::strchr("^$.}]", c))
                refuse(std::string(1, c));
            else
                copy(1);
        }
        return std::move(out_);
    }

  private:
    [[noreturn]] void refuse(const std::string& what) const {
        fail(Exit::Usage, "unsupported pattern of a tokenizer: " + where_,
             str("'", what, "' at ", at_, " in ", s_), "",
             "patterns as LLaMA 3 and Qwen have them");
    }
    bool next_is(const char* text) const { return s_.compare(at_, std::strlen(text), text) == 0; }
    void copy(size_t n) {
        out_ += s_.substr(at_, n);
        at_ += n;
    }

    void group() {
        if (!next_is("(?")) return copy(1);
        for (const char* kind : {"(?:", "(?i:", "(?=", "(?!"})
            if (next_is(kind)) return copy(std::strlen(kind));
        refuse(s_.substr(at_, 4));
    }

    // {n}, {n,}, {n,m}. A + behind it makes it possessive in PCRE2 and repeats it in Oniguruma.
    void count() {
        const size_t end = s_.find('}', at_);
        const std::string inside =
            end == std::string::npos ? "" : s_.substr(at_ + 1, end - at_ - 1);
        const bool digits = !inside.empty() && inside[0] != ',' && inside.size() < 8 &&
                            inside.find_first_not_of("0123456789,") == std::string::npos &&
                            std::count(inside.begin(), inside.end(), ',') <= 1;
        if (!digits || (end + 1 < s_.size() && s_[end + 1] == '+')) refuse(s_.substr(at_, 8));
        copy(end + 1 - at_);
    }

    void character_class() {
        copy(1);
        if (next_is("^")) copy(1);
        if (next_is("]")) refuse("[]");
        while (!next_is("]")) {
            if (at_ >= s_.size()) refuse("[ without ]");
            // A class in a class, and &&, are Oniguruma's alone.
            if (next_is("[") || next_is("&&")) refuse(s_.substr(at_, 2));
            if (s_[at_] == '\\')
                escape(true);
            else
                copy(1);
        }
        copy(1);
    }

    void escape(bool in_class) {
        const char c = at_ + 1 < s_.size() ? s_[at_ + 1] : 0;
        if (c == 's') {
            out_ += in_class ? LLMC_WHITE_SPACE : "[" LLMC_WHITE_SPACE "]";
            at_ += 2;
        } else if (c == 'S' && !in_class) {
            out_ += "[^" LLMC_WHITE_SPACE "]";
            at_ += 2;
        } else if (c == 'p' || c == 'P') {
            // A general category: one letter, or one and its subdivision.
            const size_t end = s_.find('}', at_);
            const std::string name =
                end == std::string::npos ? "" : s_.substr(at_ + 2, end - at_ - 2);
            if (name.size() < 2 || name.size() > 3 || name[0] != '{' ||
                !std::strchr("LMNPSZ", name[1]) ||
                (name.size() == 3 && !std::strchr("ultomncdepfskic", name[2])))
                refuse(s_.substr(at_, 8));
            copy(end + 1 - at_);
        } else if (c && std::strchr("rnt", c)) {
            copy(2);
        } else if (c > ' ' && c < 127 && !std::isalnum(static_cast<unsigned char>(c))) {
            copy(2);
        } else {
            refuse(s_.substr(at_, 2));
        }
    }

    const std::string& s_;
    const std::string& where_;
    size_t at_ = 0;
    std::string out_;
};

}  // namespace

// ---- matching

static std::shared_ptr<void> compile(const std::string& pattern, uint32_t options,
                                     const std::string& where) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                     PCRE2_UTF | PCRE2_UCP | options, &error, &offset, nullptr);
    CHECK(code, Exit::Usage, "cannot compile the splitting pattern of a tokenizer: " + where,
          str("PCRE2 error ", error, " at ", offset));
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // where it fails, the interpreter does the same
    return {code, [](void* p) { pcre2_code_free(static_cast<pcre2_code*>(p)); }};
}

std::string pattern_from_regex(const std::string& regex, const std::string& where) {
    const std::string pattern = RegexReader(regex, where).pattern();
    compile(pattern, 0, where);
    return pattern;
}

Splitter::Splitter(const std::string& pattern)
    : here_(compile(pattern, PCRE2_ANCHORED, pattern)), anywhere_(compile(pattern, 0, pattern)) {}

size_t Splitter::piece_end(std::string_view valid, size_t at) const {
    // One match's scratch memory for each thread, for the life of the thread.
    thread_local const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> match(
        pcre2_match_data_create(1, nullptr), pcre2_match_data_free);
    const auto matches = [&](const std::shared_ptr<void>& code) {
        const int rc = pcre2_match(static_cast<const pcre2_code*>(code.get()),
                                   reinterpret_cast<PCRE2_SPTR>(valid.data()), valid.size(), at,
                                   PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, match.get(), nullptr);
        CHECK(rc >= 0 || rc == PCRE2_ERROR_NOMATCH, Exit::Resource, "cannot split text",
              str("PCRE2 error ", rc));
        return rc >= 0;
    };
    if (matches(here_)) return pcre2_get_ovector_pointer(match.get())[1];
    return matches(anywhere_) ? pcre2_get_ovector_pointer(match.get())[0] : valid.size();
}

// ---- cutting

// May this byte be the last of a white space character? Of those outside ASCII (U+0085 to U+3000)
// it is one of a few.
static bool may_end_white_space(unsigned char c) {
    return c <= 0x20 || (c >= 0x80 && c <= 0x8a) || c == 0x9f || c == 0xa0 || c == 0xa8 ||
           c == 0xa9 || c == 0xaf;
}

// No piece holds one of `signs` after something that is not white space, and no rule looks back.
static size_t safe_cut(std::string_view text, std::string_view signs) {
    for (size_t i = text.size(); i-- > 1;)
        if (signs.find(text[i]) != signs.npos && !may_end_white_space(uint8_t(text[i - 1])))
            return i;
    return 0;
}

size_t gpt2_safe_cut(std::string_view text) {
    return safe_cut(text, " \n\t\r");
}

size_t space_safe_cut(std::string_view text) {
    return safe_cut(text, " \t");
}

// ---- normal form C

namespace {

// utf8proc.h, of every version 2: the function, and its options UTF8PROC_STABLE and
// UTF8PROC_COMPOSE. The result is malloc'ed.
using MapFunction = ssize_t (*)(const uint8_t* text, ssize_t bytes, uint8_t** result, int options);
constexpr int kNfc = 1 << 1 | 1 << 3;

MapFunction utf8proc_find() {
    for (const char* name : {"libutf8proc.so.3", "libutf8proc.so.2", "libutf8proc.so"})
        if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL))
            if (void* f = dlsym(library, "utf8proc_map")) return reinterpret_cast<MapFunction>(f);
    return nullptr;
}
MapFunction utf8proc() {
    static const MapFunction found = utf8proc_find();
    return found;
}

}  // namespace

void nfc_check(const std::string& where) {
    CHECK(utf8proc(), Exit::Resource,
          "the tokenizer brings texts into Unicode's normal form C: " + where,
          "no library utf8proc here", "", "the Debian package libutf8proc-dev");
}

void nfc_append(std::string& to, std::string_view text) {
    while (!text.empty()) {
        const std::string_view valid = text.substr(0, utf8_valid_prefix(text));
        // Below U+0300, whose first byte is 0xcc, nothing combines.
        const bool combines =
            std::any_of(valid.begin(), valid.end(), [](char c) { return uint8_t(c) >= 0xcc; });
        if (combines) {
            uint8_t* result = nullptr;
            const ssize_t n = utf8proc()(reinterpret_cast<const uint8_t*>(valid.data()),
                                         ssize_t(valid.size()), &result, kNfc);
            CHECK(n >= 0, Exit::Resource, "utf8proc cannot normalise a text", str("error ", n));
            to.append(reinterpret_cast<const char*>(result), size_t(n));
            std::free(result);
        } else {
            to.append(valid);
        }
        if (valid.size() < text.size()) to += text[valid.size()];
        text.remove_prefix(std::min(valid.size() + 1, text.size()));
    }
}
