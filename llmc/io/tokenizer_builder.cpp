// llmc/io/tokenizer_builder.cpp: tokens and merges of files, and bytes as printable characters.
#include "llmc/io/tokenizer_builder.h"

#include <algorithm>
#include <cstring>

#include "llmc/core/check.h"

using nlohmann::json;

// ---- bytes as printable characters

static int printable_of_byte(int b) {
    const auto printable = [](int c) {
        return (c >= 33 && c <= 126) || (c >= 161 && c <= 172) || (c >= 174 && c <= 255);
    };
    if (printable(b)) return b;
    int code = 256;
    for (int c = 0; c < b; c++) code += !printable(c);
    return code;
}

std::string bytes_to_printable(std::string_view bytes) {
    static const std::vector<std::string> utf8_of_byte = [] {
        std::vector<std::string> table;
        for (int b = 0; b < 256; b++) {
            const int code = printable_of_byte(b);  // below U+0800: one or two bytes
            std::string utf8;
            if (code >= 0x80) utf8 += char(0xc0 | code >> 6);
            utf8 += char(code < 0x80 ? code : 0x80 | (code & 0x3f));
            table.push_back(utf8);
        }
        return table;
    }();
    std::string text;
    for (const char c : bytes) text += utf8_of_byte[uint8_t(c)];
    return text;
}

bool printable_to_bytes(std::string_view printable, std::string& bytes) {
    static const std::unordered_map<std::string, char> byte_of_utf8 = [] {
        std::unordered_map<std::string, char> table;
        for (int b = 0; b < 256; b++) table[bytes_to_printable(std::string(1, char(b)))] = char(b);
        return table;
    }();
    bytes.clear();
    for (size_t i = 0, n; i < printable.size(); i += n) {
        n = uint8_t(printable[i]) < 0x80 ? 1 : 2;
        const auto found = byte_of_utf8.find(std::string(printable.substr(i, n)));
        if (found == byte_of_utf8.end()) return false;
        bytes += found->second;
    }
    return true;
}

// ---- the builder

json tokenizer_json_parse(const std::string& text, const std::string& where) {
    try {
        return json::parse(text);
    } catch (const json::exception& e) {
        fail(Exit::Damaged, "not a JSON file: " + where, e.what());
    }
}

std::string with_spaces(const std::string& text) {
    const size_t length = std::strlen(kSpaceSign);
    std::string bytes;
    for (size_t at = 0; at < text.size();) {
        const bool space = text.compare(at, length, kSpaceSign) == 0;
        bytes += space ? ' ' : text[at];
        at += space ? length : 1;
    }
    return bytes;
}

// What a token of a character model decodes to.
static std::string character_bytes(const std::string& text) {
    if (text.size() == 6 && text.starts_with("<0x"))
        for (int b = 0; b < 256; b++)
            if (text == byte_token(uint8_t(b))) return std::string(1, char(b));
    return with_spaces(text);
}

std::string& BpeBuilder::place(const std::string& text, const json& id) {
    constexpr int kMaxVocab = 1 << 20;  // four times the largest known; bounds the memory taken
    CHECK(!text.empty() && id.is_number_integer() && id >= 0 && id < kMaxVocab, Exit::Damaged,
          "a bad token in " + where_, "'" + text + "' with id " + id.dump(),
          str("a text and a whole number below ", kMaxVocab));
    auto& bytes = model_.vocab.bytes;
    if (id >= bytes.size()) bytes.resize(id.get<size_t>() + 1);
    return bytes[id.get<size_t>()];
}

void BpeBuilder::token(const std::string& text, const json& id) {
    std::string& bytes = place(text, id);
    CHECK(bytes.empty(), Exit::Damaged, "two tokens with one id in " + where_,
          "'" + text + "' as another token " + id.dump());
    if (model_.rules.characters)
        bytes = character_bytes(text);
    else if (!printable_to_bytes(text, bytes))
        bytes = text;
    id_of_[text] = id.get<int>();
    if (model_.rules.characters)
        model_.id_of[text] = id.get<int>();
    else if (model_.rules.whole_pieces)
        model_.id_of[bytes] = id.get<int>();
}

void BpeBuilder::place_special(const std::string& text, const json& id) {
    std::string& bytes = place(text, id);
    const auto listed = id_of_.find(text);
    CHECK(bytes.empty() || (listed != id_of_.end() && listed->second == id), Exit::Damaged,
          "two tokens with one id in " + where_, "'" + text + "' as another token " + id.dump());
    bytes = text;
}
void BpeBuilder::special(const std::string& text, const json& id) {
    place_special(text, id);
    model_.vocab.specials.emplace_back(text, id.get<int>());
}
void BpeBuilder::added(const std::string& text, const json& id) {
    place_special(text, id);
    model_.vocab.added.emplace_back(text, id.get<int>());
}

void BpeBuilder::merge(const std::string& line) {
    const size_t space = line.find(' ');
    CHECK(space != std::string::npos, Exit::Damaged, "not a merge of two tokens in " + where_,
          "'" + line + "'");
    merge(line.substr(0, space), line.substr(space + 1));
}
void BpeBuilder::merge(const std::string& left, const std::string& right) {
    model_.merges.push_back({id_of(left), id_of(right), id_of(left + right)});
}

int BpeBuilder::id_of(const std::string& text) const {
    const auto found = id_of_.find(text);
    CHECK(
        found != id_of_.end(), Exit::Damaged,
        str("merge ", model_.merges.size(), " uses a token that the vocabulary lacks in ", where_),
        "'" + text + "'");
    return found->second;
}

BpeModel BpeBuilder::finish(std::string source) {
    const auto& bytes = model_.vocab.bytes;
    const auto hole = std::find(bytes.begin(), bytes.end(), std::string());
    CHECK(hole == bytes.end(), Exit::Damaged, "a gap in the ids of " + where_,
          str("no token ", hole - bytes.begin()), str("tokens 0 to ", bytes.size() - 1));
    model_.source = std::move(source);
    bpe_complete(model_, where_);
    return std::move(model_);
}
