// llmc/io/tokenizer_files.cpp: tokenizers as files: Hugging Face's, OpenAI's, llm.c's.
//
// Files come from anywhere: nothing is trusted, every id and every merge is checked, and a setting
// that would change ids and that we do not have is refused by name.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <unordered_map>

#include <nlohmann/json.hpp>

#include "llmc/core/check.h"
#include "llmc/io/tokenizer_bpe.h"
#include "llmc/io/tokenizer_sentencepiece.h"

namespace fs = std::filesystem;
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
            const int code = printable_of_byte(b); // below U+0800: one or two bytes
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

// ---- vocabulary and merges, as the JSON files have them

static std::string file_read(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    CHECK(in, Exit::Usage, "cannot open tokenizer file " + path.string(), std::strerror(errno));
    std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    CHECK(!in.bad() && !text.empty(), Exit::Damaged, "cannot read tokenizer file " + path.string(),
          "no content");
    return text;
}

static json json_parse(const std::string& text, const std::string& where) {
    try {
        return json::parse(text);
    } catch (const json::exception& e) {
        fail(Exit::Damaged, "not a JSON file: " + where, e.what());
    }
}

namespace {

// Puts a model together from the printable tokens of a file, checking each entry.
class BpeBuilder {
  public:
    explicit BpeBuilder(const std::string& where) : where_(where) {}

    // A token of the vocabulary proper; its text is in the byte alphabet.
    void token(const std::string& text, const json& id) {
        std::string& bytes = place(text, id);
        CHECK(bytes.empty(), Exit::Damaged, "two tokens with one id in " + where_,
              "'" + text + "' as another token " + id.dump());
        if (!printable_to_bytes(text, bytes)) bytes = text;
        id_of_[text] = id.get<int>();
    }
    // A special token: its text stands for itself. It may have been listed with the others before.
    void special(const std::string& text, const json& id) {
        std::string& bytes = place(text, id);
        const auto listed = id_of_.find(text);
        CHECK(bytes.empty() || (listed != id_of_.end() && listed->second == id), Exit::Damaged,
              "two tokens with one id in " + where_,
              "'" + text + "' as another token " + id.dump());
        bytes = text;
        model_.vocab.specials.emplace_back(text, id.get<int>());
    }
    // "left right", a line of the list of merges.
    void merge(const std::string& line) {
        const size_t space = line.find(' ');
        CHECK(space != std::string::npos, Exit::Damaged, "not a merge of two tokens in " + where_,
              "'" + line + "'");
        merge(line.substr(0, space), line.substr(space + 1));
    }
    void merge(const std::string& left, const std::string& right) {
        model_.merges.push_back({id_of(left), id_of(right), id_of(left + right)});
    }
    bool has(const std::string& text) const { return id_of_.count(text) > 0; }
    int id_of(const std::string& text) const {
        const auto found = id_of_.find(text);
        CHECK(found != id_of_.end(), Exit::Damaged,
              str("merge ", model_.merges.size(), " uses a token that the vocabulary lacks in ",
                  where_),
              "'" + text + "'");
        return found->second;
    }
    BpeModel finish() {
        const auto& bytes = model_.vocab.bytes;
        const auto hole = std::find(bytes.begin(), bytes.end(), std::string());
        CHECK(hole == bytes.end(), Exit::Damaged, "a gap in the ids of " + where_,
              str("no token ", hole - bytes.begin()), str("tokens 0 to ", bytes.size() - 1));
        bpe_complete(model_, where_);
        return std::move(model_);
    }

  private:
    std::string& place(const std::string& text, const json& id) {
        constexpr int kMaxVocab = 1 << 20; // four times the largest known; bounds the memory taken
        CHECK(!text.empty() && id.is_number_integer() && id >= 0 && id < kMaxVocab, Exit::Damaged,
              "a bad token in " + where_, "'" + text + "' with id " + id.dump(),
              str("a text and a whole number below ", kMaxVocab));
        auto& bytes = model_.vocab.bytes;
        if (id >= bytes.size()) bytes.resize(id.get<size_t>() + 1);
        return bytes[id.get<size_t>()];
    }

    const std::string where_;
    BpeModel model_;
    std::unordered_map<std::string, int> id_of_;
};

} // namespace

// ---- Hugging Face's tokenizer.json

// Refuses, by its name, a setting that changes what encoding gives and that is not implemented.
static void settings_check(const json& file, const json& bpe, const std::string& where) {
    const auto need = [&](bool ok, const std::string& name, const json& found,
                          const char* expected) {
        CHECK(ok, Exit::Usage, "unsupported kind of tokenizer: " + where, name + " " + found.dump(),
              name + " " + expected, "byte-level BPE as in GPT-2 is supported");
    };
    const json type = bpe.value("type", json("BPE"));
    need(type == "BPE", "model type", type, "BPE");
    const json normalizer = file.value("normalizer", json());
    need(normalizer.is_null(), "normalizer", normalizer, "null");
    const json split = file.value("pre_tokenizer", json());
    need(split.is_object() && split.value("type", json()) == "ByteLevel" &&
             split.value("add_prefix_space", json(true)) == false &&
             split.value("use_regex", json(true)) == true,
         "pre_tokenizer", split, R"({"type":"ByteLevel","add_prefix_space":false})");
    for (const char* name :
         {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"}) {
        const json value = bpe.value(name, json());
        need(value.is_null() || value == "", name, value, "null");
    }
    for (const char* name : {"byte_fallback", "ignore_merges"}) {
        const json value = bpe.value(name, json(false));
        need(value == false, name, value, "false");
    }
}

std::unique_ptr<Tokenizer> tokenizer_from_json(const std::string& text, const std::string& where) {
    const json file = json_parse(text, where);
    BpeBuilder builder(where);
    try {
        const json& bpe = file.at("model");
        if (bpe.value("type", json()) == "SentencePiece")
            return sentencepiece_tokenizer(
                base64_decode(bpe.at("model_base64").get<std::string>(), where), where);
        settings_check(file, bpe, where);
        for (const auto& [token, id] : bpe.at("vocab").items()) builder.token(token, id);
        for (const json& merge : bpe.at("merges")) {
            if (merge.is_array())
                builder.merge(merge.at(0).get<std::string>(), merge.at(1).get<std::string>());
            else
                builder.merge(merge.get<std::string>());
        }
        for (const json& added : file.value("added_tokens", json::array()))
            builder.special(added.at("content").get<std::string>(), added.at("id"));
    } catch (const json::exception& e) {
        fail(Exit::Damaged, "not a tokenizer: " + where, e.what(), "Hugging Face's tokenizer.json");
    }
    return bpe_tokenizer(builder.finish());
}

std::string bpe_to_json(const BpeModel& model) {
    // By hand and not through a JSON object, which would put the ids out of order.
    const auto& bytes = model.vocab.bytes;
    std::vector<std::string> printable(bytes.size());
    for (size_t id = 0; id < bytes.size(); id++) printable[id] = bytes_to_printable(bytes[id]);
    std::string added;
    for (const auto& [text, id] : model.vocab.specials) {
        printable[size_t(id)] = text;
        added +=
            str(added.empty() ? "\n" : ",\n", R"(    {"id": )", id, R"(, "content": )",
                json(text).dump(), R"(, "single_word": false, "lstrip": false, "rstrip": false,)",
                R"( "normalized": false, "special": true})");
    }
    std::string vocab, merges;
    for (size_t id = 0; id < bytes.size(); id++)
        vocab += str(id ? ",\n" : "\n", "      ", json(printable[id]).dump(), ": ", id);
    for (const BpeMerge& m : model.merges)
        merges += str(merges.empty() ? "\n" : ",\n", "      ",
                      json(printable[size_t(m.left)] + " " + printable[size_t(m.right)]).dump());
    const std::string level = R"({"type": "ByteLevel", "add_prefix_space": false, )"
                              R"("trim_offsets": true, "use_regex": true})";
    return "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n"
           "  \"added_tokens\": [" +
           added +
           "\n  ],\n  \"normalizer\": null,\n"
           "  \"pre_tokenizer\": " +
           level +
           ",\n  \"post_processor\": null,\n"
           "  \"decoder\": " +
           level +
           ",\n  \"model\": {\n    \"type\": \"BPE\",\n"
           "    \"dropout\": null,\n    \"unk_token\": null,\n"
           "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n"
           "    \"fuse_unk\": false,\n    \"byte_fallback\": false,\n    \"vocab\": {" +
           vocab + "\n    },\n    \"merges\": [" + merges + "\n    ]\n  }\n}\n";
}

// ---- OpenAI's pair of files

static std::unique_ptr<Tokenizer> gpt2_files_open(const fs::path& vocab, const fs::path& merges) {
    const json tokens = json_parse(file_read(vocab), vocab.string());
    CHECK(tokens.is_object(), Exit::Damaged, "not a vocabulary: " + vocab.string(), "",
          "one JSON object of tokens and their ids");
    BpeBuilder builder(vocab.string() + " and " + merges.filename().string());
    for (const auto& [token, id] : tokens.items()) builder.token(token, id);
    std::istringstream lines(file_read(merges));
    std::string line;
    for (bool first = true; std::getline(lines, line); first = false)
        if (!line.empty() && !(first && line.starts_with("#version"))) builder.merge(line);
    if (builder.has(kEndOfText)) builder.special(kEndOfText, builder.id_of(kEndOfText));
    return bpe_tokenizer(builder.finish());
}

// ---- llm.c's tokenizer.bin: the bytes of each token, no merges

namespace {

constexpr uint32_t kTokenizerMagic = 20240328;

class DecodeOnlyTokenizer : public Tokenizer {
  public:
    explicit DecodeOnlyTokenizer(std::shared_ptr<const Vocabulary> vocab) : Tokenizer(vocab) {}
    size_t safe_cut(std::string_view) const override { return 0; }
    std::string json() const override { refuse(); }
    std::unique_ptr<Tokenizer> clone() const override {
        return std::make_unique<DecodeOnlyTokenizer>(vocab_);
    }

  protected:
    void encode_ordinary(std::string_view, std::vector<int>&) override { refuse(); }

  private:
    [[noreturn]] void refuse() const {
        fail(Exit::Usage, "llm.c's tokenizer.bin can only decode",
             "a list of tokens without merges: " + name(), "",
             "use encoder.json and vocab.bpe, or a tokenizer.json");
    }
};

} // namespace

static std::unique_ptr<Tokenizer> llmc_tokenizer_open(const std::string& file,
                                                      const std::string& where) {
    uint32_t head[256] = {};
    CHECK(file.size() >= sizeof head, Exit::Damaged, "damaged tokenizer " + where,
          str(file.size(), " bytes"), "a header of 1024 bytes");
    std::memcpy(head, file.data(), sizeof head);
    CHECK(head[1] == 1 || head[1] == 2, Exit::Damaged, "tokenizer of an unknown version: " + where,
          str("version ", head[1]), "version 1 or 2");
    auto vocab = std::make_shared<Vocabulary>();
    vocab->name = where;
    size_t at = sizeof head;
    for (uint32_t id = 0; id < head[2]; id++) {
        const size_t length = at < file.size() ? uint8_t(file[at]) : 0;
        CHECK(length > 0 && length < file.size() - at, Exit::Damaged, "damaged tokenizer " + where,
              str("no bytes for token ", id, " at byte offset ", at), str(head[2], " tokens"));
        vocab->bytes.push_back(file.substr(at + 1, length));
        at += 1 + length;
    }
    CHECK(at == file.size(), Exit::Damaged, "damaged tokenizer " + where,
          str(file.size() - at, " bytes behind the last token"));
    constexpr uint32_t kGpt2Eot = 50256; // version 1 knows only GPT-2 and does not say it
    const uint32_t eot = head[1] == 2 ? head[3] : kGpt2Eot;
    CHECK(eot < head[2], Exit::Damaged, "damaged tokenizer " + where, str("end-of-text id ", eot),
          str("an id below ", head[2]));
    vocab->eot = int(eot);
    return std::make_unique<DecodeOnlyTokenizer>(vocab);
}

// ---- any of them

std::unique_ptr<Tokenizer> tokenizer_open(const std::string& spec) {
    if (spec == "byte") return bpe_tokenizer(byte_model());
    const fs::path path = spec;
    std::error_code ignored;
    const bool is_dir = fs::is_directory(path, ignored);
    const fs::path dir = is_dir ? path : path.parent_path();
    constexpr const char* kHint =
        "byte, a tokenizer.json, or a folder with encoder.json and vocab.bpe";
    CHECK(fs::exists(path, ignored), Exit::Usage, "no such tokenizer: " + spec, "", kHint);

    if (is_dir && fs::exists(dir / "tokenizer.json")) return tokenizer_open(dir / "tokenizer.json");
    for (const auto& [vocab, merges] :
         {std::pair("encoder.json", "vocab.bpe"), std::pair("vocab.json", "merges.txt")}) {
        const bool named = path.filename() == vocab || path.filename() == merges;
        if (named || (is_dir && fs::exists(dir / vocab)))
            return gpt2_files_open(dir / vocab, dir / merges);
    }
    CHECK(!is_dir, Exit::Usage, "no tokenizer in the folder " + spec, "", kHint);
    const std::string text = file_read(path);
    if (text.size() >= 4 && std::memcmp(text.data(), &kTokenizerMagic, 4) == 0)
        return llmc_tokenizer_open(text, spec);
    if (path.extension() == ".model") return sentencepiece_tokenizer(text, spec);
    if (llama2c_tokenizer_is(text))
        return sentencepiece_tokenizer(llama2c_tokenizer_model(text, spec), spec);
    return tokenizer_from_json(text, spec);
}
