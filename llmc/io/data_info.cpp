// llmc/io/data_info.cpp: the note as JSON, and what must be true of the files that it names.
#include "llmc/io/data_info.h"

#include <algorithm>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "llmc/core/check.h"
#include "llmc/core/hash.h"
#include "llmc/core/plural.h"
#include "llmc/io/json_integer.h"
#include "llmc/io/text_file.h"
#include "llmc/io/tokenizer.h"
#include "llmc/io/tokens.h"

namespace fs = std::filesystem;
using json = nlohmann::ordered_json;  // the note is for reading: fields stay in our order

constexpr const char* kFormat = "train_gpt data 1";
constexpr int64_t kMaxNoteBytes = 64 << 20;

std::string data_prefix(const std::string& shard_path) {
    // From the end: ".bin", digits, "_train_" or "_val_".
    const fs::path path = shard_path;
    std::string name = path.filename().string();
    if (!name.ends_with(".bin")) return "";
    name.resize(name.size() - 4);
    const size_t digits = name.find_last_not_of("0123456789") + 1;
    if (digits == name.size()) return "";
    name.resize(digits);
    for (const std::string part : {"_train_", "_val_"})
        if (name.ends_with(part) && name.size() > part.size())
            return (path.parent_path() / name.substr(0, name.size() - part.size())).string();
    return "";
}

// ---- writing

static json part_json(const DataPart& part) {
    json files = json::array();
    for (const TokenShardInfo& s : part.shards) {
        files.push_back({{"name", fs::path(s.path).filename().string()},
                         {"tokens", s.tokens},
                         {"xxh3_128_of_ids", s.digest}});
        if (s.masked) files.back()["masked"] = true;
    }
    json note = {{"bytes", part.bytes}, {"documents", part.documents}, {"tokens", part.tokens}};
    if (part.untrained) note["untrained"] = part.untrained;
    note["files"] = files;
    return note;
}

std::string data_info_json(const DataInfo& info) {
    const json note = {{"format", kFormat},
                       {"tokenizer", fs::path(info.tokenizer).filename().string()},
                       {"tokenizer_name", info.tokenizer_name},
                       {"tokenizer_xxh3_128", info.tokenizer_digest},
                       {"vocab_size", info.vocab_size},
                       {"end_of_text", info.eot},
                       {"train", part_json(info.train)},
                       {"val", part_json(info.val)}};
    return note.dump(2) + "\n";
}

// ---- reading

// Names in a note are names of files beside it, nothing else.
static std::string beside(const fs::path& dir, const json& name, const std::string& note) {
    const std::string text = name.get<std::string>();
    CHECK(!text.empty() && text.find('/') == std::string::npos && text != "." && text != "..",
          Exit::Damaged, "a bad file name in " + note, "'" + text + "'", "a name without a path");
    return (dir / text).string();
}

static int64_t integer(const json& object, const char* key, const std::string& note,
                       int64_t least = 0, int64_t most = INT64_MAX) {
    const json& value = object.at(key);
    CHECK(json_is_integer(value, least, most), Exit::Damaged,
          str("a bad number in ", note, ": ", key), value.dump(), str(least, " to ", most));
    return value.get<int64_t>();
}

static DataPart part_read(const json& part, const fs::path& dir, const std::string& note) {
    DataPart p;
    p.bytes = integer(part, "bytes", note);
    p.documents = integer(part, "documents", note);
    p.tokens = integer(part, "tokens", note);
    p.untrained = part.contains("untrained") ? integer(part, "untrained", note) : 0;
    for (const json& file : part.at("files"))
        p.shards.push_back(
            {beside(dir, file.at("name"), note), integer(file, "tokens", note, 0, kMaxShardTokens),
             file.at("xxh3_128_of_ids").get<std::string>(), file.value("masked", false)});
    return p;
}

std::optional<DataInfo> data_info_read(const std::string& prefix) {
    const fs::path path = prefix + ".json";
    std::error_code none;
    if (!fs::exists(path, none)) return std::nullopt;
    const std::string text = text_file_read(path, kMaxNoteBytes);
    try {
        const json note = json::parse(text);
        if (!note.is_object() || !note.contains("format")) return std::nullopt;  // somebody else's
        CHECK(note.at("format") == kFormat, Exit::Damaged,
              "not a note on token files: " + path.string(), note.at("format").dump(),
              str('"', kFormat, '"'));
        DataInfo info;
        info.tokenizer = beside(path.parent_path(), note.at("tokenizer"), path.string());
        info.tokenizer_name = note.at("tokenizer_name").get<std::string>();
        info.tokenizer_digest = note.at("tokenizer_xxh3_128").get<std::string>();
        info.vocab_size = int(integer(note, "vocab_size", path.string(), 1, INT32_MAX));
        info.eot = int(integer(note, "end_of_text", path.string(), -1, INT32_MAX));
        info.train = part_read(note.at("train"), path.parent_path(), path.string());
        info.val = part_read(note.at("val"), path.parent_path(), path.string());
        return info;
    } catch (const json::exception& e) {
        fail(Exit::Damaged, "not a note on token files: " + path.string(), e.what(), "",
             "tokenize again, or remove the file");
    }
}

// The files are the ones that the note was written with.
static void data_info_check(const DataInfo& info, const std::string& prefix) {
    const int64_t width = int64_t(dtype_bytes(token_dtype(info.vocab_size)));
    for (const DataPart* part : {&info.train, &info.val})
        for (const TokenShardInfo& shard : part->shards) {
            std::error_code error;
            const auto size = fs::file_size(shard.path, error);
            const int64_t expected = kTokenHeaderBytes + shard.tokens * width +
                                     (shard.masked ? token_mask_bytes(shard.tokens) : 0);
            CHECK(!error && int64_t(size) == expected, Exit::Damaged,
                  "token file " + shard.path + " is not the one that " + prefix + ".json names",
                  error ? error.message() : counted(size, "byte"),
                  counted(int64_t(expected), "byte"),
                  "the data set is not complete: tokenize again, or copy all of it");
        }
    const std::string text = text_file_read(info.tokenizer, kMaxTokenizerBytes);
    CHECK(digest_bytes(text.data(), text.size()) == info.tokenizer_digest, Exit::Damaged,
          info.tokenizer + " is not the tokenizer that " + prefix + ".json names",
          "digest " + digest_bytes(text.data(), text.size()), "digest " + info.tokenizer_digest);
}

std::optional<DataInfo> data_info_find(const std::vector<std::string>& patterns) {
    std::vector<std::string> prefixes;
    for (const std::string& path : token_files_matching(patterns))
        prefixes.push_back(data_prefix(path));
    std::sort(prefixes.begin(), prefixes.end());
    prefixes.erase(std::unique(prefixes.begin(), prefixes.end()), prefixes.end());

    std::optional<DataInfo> found;
    for (const std::string& prefix : prefixes) {
        const std::optional<DataInfo> info = prefix.empty() ? std::nullopt : data_info_read(prefix);
        if (!info) continue;
        data_info_check(*info, prefix);
        CHECK(!found || found->tokenizer_digest == info->tokenizer_digest, Exit::Usage,
              "token files of different tokenizers", found->tokenizer + " and " + info->tokenizer,
              "one vocabulary for all");
        if (!found) found = info;
    }
    return found;
}
