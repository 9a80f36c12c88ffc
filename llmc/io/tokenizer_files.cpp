// llmc/io/tokenizer_files.cpp: tokenizers as files: OpenAI's, llm.c's, and which kind a file is.
// Hugging Face's: tokenizer_json.cpp.
//
// Files come from anywhere: nothing is trusted, every id and every merge is checked.
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <sstream>

#include <nlohmann/json.hpp>

#include "llmc/core/check.h"
#include "llmc/core/plural.h"
#include "llmc/io/text_file.h"
#include "llmc/io/tokenizer_builder.h"
#include "llmc/io/tokenizer_sentencepiece.h"

namespace fs = std::filesystem;
using nlohmann::json;

static std::string file_read(const fs::path& path) {
    std::string text = text_file_read(path, kMaxTokenizerBytes);
    CHECK(!text.empty(), Exit::Damaged, "damaged tokenizer " + path.string(), "no content");
    return text;
}

// ---- OpenAI's pair of files

static std::unique_ptr<Tokenizer> gpt2_files_open(const fs::path& vocab, const fs::path& merges) {
    const json tokens = tokenizer_json_parse(file_read(vocab), vocab.string());
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
    void encode_ordinary(std::string_view, bool, std::vector<int>&) override { refuse(); }

  private:
    [[noreturn]] void refuse() const {
        fail(Exit::Usage, "llm.c's tokenizer.bin can only decode",
             "a list of tokens without merges: " + name(), "",
             "use encoder.json and vocab.bpe, or a tokenizer.json");
    }
};

}  // namespace

static std::unique_ptr<Tokenizer> llmc_tokenizer_open(const std::string& file,
                                                      const std::string& where) {
    uint32_t head[256] = {};
    CHECK(file.size() >= sizeof head, Exit::Damaged, "damaged tokenizer " + where,
          counted(int64_t(file.size()), "byte"), "a header of 1024 bytes");
    std::memcpy(head, file.data(), sizeof head);
    CHECK(head[1] == 1 || head[1] == 2, Exit::Damaged, "tokenizer of an unknown version: " + where,
          str("version ", head[1]), "version 1 or 2");
    auto vocab = std::make_shared<Vocabulary>();
    vocab->name = where;
    size_t at = sizeof head;
    for (uint32_t id = 0; id < head[2]; id++) {
        const size_t length = at < file.size() ? uint8_t(file[at]) : 0;
        CHECK(length > 0 && length < file.size() - at, Exit::Damaged, "damaged tokenizer " + where,
              str("no bytes for token ", id, " at byte offset ", at), counted(head[2], "token"));
        vocab->bytes.push_back(file.substr(at + 1, length));
        at += 1 + length;
    }
    CHECK(at == file.size(), Exit::Damaged, "damaged tokenizer " + where,
          str(counted(int64_t(file.size() - at), "byte"), " behind the last token"));
    constexpr uint32_t kGpt2Eot = 50256;  // version 1 knows only GPT-2 and does not say it
    const uint32_t eot = head[1] == 2 ? head[3] : kGpt2Eot;
    CHECK(eot < head[2], Exit::Damaged, "damaged tokenizer " + where, str("end-of-text id ", eot),
          str("an id below ", head[2]));
    vocab->eot = int(eot);
    return std::make_unique<DecodeOnlyTokenizer>(vocab);
}

// ---- any of them

std::unique_ptr<Tokenizer> tokenizer_in_folder(const std::string& folder) {
    std::error_code none;
    std::vector<fs::path> files;
    const auto look_for = [&](const char* name) {
        if (fs::exists(fs::path(folder) / name, none)) files.push_back(fs::path(folder) / name);
    };
    look_for("tokenizer.json"), look_for("tokenizer.model");
    // The pairs do not say how text is split, so they are no substitute for a refused file.
    if (files.empty()) look_for("encoder.json"), look_for("vocab.json");
    std::optional<Error> refused;
    for (const fs::path& file : files) {
        try {
            auto tokenizer = tokenizer_open(file.string());
            if (refused)
                std::fprintf(stderr, "note: going on with %s: %s\n", file.c_str(), refused->what());
            return tokenizer;
        } catch (const Error& e) {
            if (!refused) refused = e;
        }
    }
    if (refused) throw *refused;
    return nullptr;
}

std::unique_ptr<Tokenizer> tokenizer_open(const std::string& spec) {
    if (spec == "byte") return bpe_tokenizer(byte_model());
    const fs::path path = spec;
    std::error_code ignored;
    constexpr const char* kKinds =
        "byte, a tokenizer.json, a sentencepiece .model, llama2.c's or llm.c's tokenizer.bin, "
        "encoder.json and vocab.bpe, vocab.json and merges.txt, or a folder with one of them";
    CHECK(fs::exists(path, ignored), Exit::Usage, "no such tokenizer: " + spec, "", kKinds);
    if (fs::is_directory(path, ignored)) {
        auto tokenizer = tokenizer_in_folder(spec);
        CHECK(tokenizer, Exit::Usage, "no tokenizer in the folder " + spec, "", kKinds);
        return tokenizer;
    }

    for (const auto& [vocab, merges] :
         {std::pair("encoder.json", "vocab.bpe"), std::pair("vocab.json", "merges.txt")})
        if (path.filename() == vocab || path.filename() == merges)
            return gpt2_files_open(path.parent_path() / vocab, path.parent_path() / merges);
    const std::string text = file_read(path);
    if (text.size() >= 4 && std::memcmp(text.data(), &kTokenizerMagic, 4) == 0)
        return llmc_tokenizer_open(text, spec);
    if (path.extension() == ".model") return sentencepiece_tokenizer(text, spec);
    if (llama2c_tokenizer_is(text))
        return sentencepiece_tokenizer(llama2c_tokenizer_model(text, spec), spec);
    return tokenizer_from_json(text, spec);
}
