// llmc/train/tokenize.cpp: text in, token files out; text in, a vocabulary out.
#include "llmc/train/tokenize.h"

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <initializer_list>
#include <set>

#include "llmc/core/check.h"
#include "llmc/core/hash.h"
#include "llmc/core/plural.h"
#include "llmc/io/data_info.h"
#include "llmc/io/token_writer.h"
#include "llmc/io/tokenizer_train.h"
#include "llmc/train/documents.h"
#include "llmc/train/progress.h"
#include "llmc/train/saves.h"

namespace fs = std::filesystem;

// ---- what is done and how fast, on stderr

namespace {

class Meter {
  public:
    Meter(const std::string& what, int64_t bytes) : bar_(what, bytes) {}
    void update(int64_t bytes) {
        bytes_ = bytes;
        bar_.update(bytes, rate());
    }
    std::string rate() const {
        char text[32];
        std::snprintf(text, sizeof text, "%.1f MB/s",
                      double(bytes_) / 1e6 / std::max(seconds(), 1e-6));
        return text;
    }
    double seconds() const {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    }

  private:
    Progress bar_;
    int64_t bytes_ = 0;
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

// ---- the files of one PREFIX

// PREFIX with its folder made.
static std::string prefix_make(const std::string& out) {
    const fs::path prefix = fs::path(out).lexically_normal();
    CHECK(prefix.has_filename() && prefix.filename() != "..", Exit::Usage, "--out needs a name",
          "'" + out + "'",
          "the start of file names, as in data/book for data/book_train_000000.bin");
    std::error_code error;
    fs::create_directories(dir_of(prefix), error);
    CHECK(!error, Exit::Usage, "cannot make the folder of --out " + out, error.message());
    return prefix.string();
}

static std::string note_path(const std::string& prefix) {
    return prefix + ".json";
}
static std::string tokenizer_path(const std::string& prefix) {
    return prefix + "_tokenizer.json";
}

static std::set<std::string> outputs_of(const DataInfo& info, const std::string& prefix) {
    std::set<std::string> paths = {note_path(prefix), tokenizer_path(prefix)};
    for (const DataPart* part : {&info.train, &info.val})
        for (const TokenShardInfo& shard : part->shards) paths.insert(shard.path);
    return paths;
}

// What an earlier run left under this prefix. Anything else in our way is somebody's own.
static std::set<std::string> outputs_claim(const std::string& prefix) {
    std::set<std::string> ours;
    if (const std::optional<DataInfo> old = data_info_read(prefix)) ours = outputs_of(*old, prefix);
    const std::string dir = dir_of(prefix);
    for (const std::string& name : dir_list(dir_open(dir), dir)) {
        const std::string path = (fs::path(prefix).parent_path() / name).string();
        if (path.ends_with(".tmp") && data_prefix(path.substr(0, path.size() - 4)) == prefix)
            file_remove(path);  // of a run that was killed
        const bool in_the_way = path == note_path(prefix) || path == tokenizer_path(prefix) ||
                                data_prefix(path) == prefix;
        CHECK(!in_the_way || ours.count(path), Exit::Usage,
              path + " is in the way and not from train_gpt tokenize", "", "",
              "another --out, or remove it");
    }
    return ours;
}

// A small file that is complete on the disk, to be renamed to path.
static void temporary_write(const std::string& path, const std::string& text) {
    file_remove(path + ".tmp");
    file_write_durable(path + ".tmp", text);
}

// Whatever may fail for want of space is done while the old data is still there. Then the old
// shards go before the new ones get their names: whenever this is interrupted, the note names files
// that are missing, and no half of one data set is taken with half of another.
static void outputs_publish(const DataInfo& info, const std::string& prefix,
                            const std::string& tokenizer, std::set<std::string> old,
                            std::initializer_list<TokenWriter*> writers) {
    const std::string texts[] = {tokenizer_path(prefix), note_path(prefix)};
    temporary_write(texts[0], tokenizer);
    temporary_write(texts[1], data_info_json(info));
    for (const std::string& path : texts) old.erase(path);
    for (const std::string& path : old) file_remove(path);
    for (const std::string& path : texts) rename_path(path + ".tmp", path);
    for (TokenWriter* writer : writers) writer->publish();
    sync_dir(dir_of(prefix));
}

// ---- tokenize

namespace {

// Parts of text go in, in order; their ids come out in the same order, encoded by several threads.
class ParallelEncoder {
  public:
    ParallelEncoder(const Tokenizer& tokenizer, int threads) {
        for (int t = 0; t < threads; t++) tokenizers_.push_back(tokenizer.clone());
    }
    void encode(const std::vector<TextPart>& parts, std::vector<std::vector<int>>& ids) {
        ids.resize(parts.size());
        std::exception_ptr fault;  // an exception must not leave a parallel region
#pragma omp parallel for schedule(dynamic) num_threads(int(tokenizers_.size()))
        for (size_t i = 0; i < parts.size(); i++) {
            try {
                ids[i].clear();
                tokenizers_[size_t(omp_get_thread_num())]->encode(parts[i].text, false, ids[i]);
            } catch (...) {
#pragma omp critical
                fault = std::current_exception();
            }
        }
        if (fault) std::rethrow_exception(fault);
    }

  private:
    std::vector<std::unique_ptr<Tokenizer>> tokenizers_;
};

}  // namespace

// For each id, whether it is trained on: all of its bytes must be.
static std::string mask_make(const TextPart& text, const std::vector<int>& ids,
                             const Tokenizer& tokenizer) {
    std::string trained(ids.size(), 1);
    if (text.untrained.empty()) return trained;
    int64_t at = tokenizer.space_before_text() ? -1 : 0;  // of the id's first byte in the text
    auto range = text.untrained.begin();
    for (size_t i = 0; i < ids.size(); i++) {
        const int64_t end = at + int64_t(tokenizer.token_bytes(ids[i]).size());
        while (range != text.untrained.end() && int64_t(range->end) <= at) range++;
        trained[i] = range == text.untrained.end() || end <= int64_t(range->begin);
        at = end;
    }
    CHECK(at == int64_t(text.text.size()), Exit::Usage,
          "the tokenizer " + tokenizer.name() + " changes the text, so no mask fits it",
          str(counted(at, "byte"), " back from ", text.text.size()), "",
          "text that decoding gives back as it was");
    return trained;
}

namespace {

// The token files of one part of the set, and what the note says about them.
struct PartWriter {
    TokenWriter& files;
    DataPart& part;
    bool trained = true;  // the last token so far

    // The end-of-text before a document is what ends the one before it: it is trained on if that
    // one's last token is.
    void add(const TextPart& text, const std::vector<int>& ids, int eot,
             const Tokenizer& tokenizer) {
        if (text.begins_document) {
            const char mask = trained;
            files.add(&eot, 1, &mask);
            part.untrained += !trained;
            part.documents++;
        }
        const std::string mask = mask_make(text, ids, tokenizer);
        files.add(ids.data(), ids.size(), mask.data());
        part.untrained += std::count(mask.begin(), mask.end(), 0);
        if (!mask.empty()) trained = mask.back();
        part.bytes += int64_t(text.text.size());
    }
};

}  // namespace

static void part_print(const char* name, const DataPart& part) {
    if (part.shards.empty()) return;
    const std::string trained =
        part.untrained ? " (" + grouped(part.tokens - part.untrained) + " to train on)" : "";
    std::printf("%-10s %s tokens%s, %.2f bytes a token, %s %s: %s", name,
                grouped(part.tokens).c_str(), trained.c_str(),
                double(part.bytes) / double(part.tokens), grouped(part.documents).c_str(),
                plural(part.documents, "document").c_str(), part.shards.front().path.c_str());
    if (part.shards.size() > 1)
        std::printf(" ... %s", fs::path(part.shards.back().path).filename().c_str());
    std::printf("\n");
}

void tokenize_run(const Options& opt) {
    const std::unique_ptr<Tokenizer> tokenizer = tokenizer_named(opt.tokenizer);
    const int eot = tokenizer->eot(), threads = opt.threads ? opt.threads : omp_get_num_procs();
    CHECK(eot >= 0, Exit::Usage, "the tokenizer has no end-of-text token: " + opt.tokenizer, "",
          str("a special token ", kEndOfText, " to begin documents with"));
    const std::string json = tokenizer->json();
    const auto safe_cut = [&](std::string_view text) { return tokenizer->safe_cut(text); };
    DocumentReader reader({opt.files, opt.val_fraction, opt.separator, safe_cut});
    const std::string prefix = prefix_make(opt.out);
    const std::set<std::string> old = outputs_claim(prefix);

    DataInfo info = {tokenizer_path(prefix),
                     tokenizer->name(),
                     digest_bytes(json.data(), json.size()),
                     tokenizer->vocab_size(),
                     eot,
                     {},
                     {}};
    TokenWriter train(prefix + "_train", info.vocab_size, opt.shard_tokens);
    TokenWriter val(prefix + "_val", info.vocab_size, opt.shard_tokens);
    PartWriter train_part{train, info.train}, val_part{val, info.val};
    ParallelEncoder encoder(*tokenizer, threads);
    Meter meter("tokenize", reader.bytes_total());
    std::vector<TextPart> parts;
    std::vector<std::vector<int>> ids;
    for (bool more = true; more;) {
        parts.clear();
        size_t bytes = 0;
        for (TextPart part; bytes < size_t(threads) << 20 && (more = reader.next(part));) {
            bytes += part.text.size();
            parts.push_back(std::move(part));
        }
        encoder.encode(parts, ids);
        for (size_t i = 0; i < parts.size(); i++)
            (parts[i].validation ? val_part : train_part).add(parts[i], ids[i], eot, *tokenizer);
        meter.update(reader.bytes_read());
    }
    CHECK(info.train.documents > 0, Exit::Usage, "no text to train on",
          str(counted(reader.bytes_total(), "byte"), " in ",
              counted(int64_t(opt.files.size()), "file")),
          "some text before the part for validation");
    CHECK(info.val.documents > 0 || opt.val_fraction == 0, Exit::Usage, "no text for validation",
          str("no line that begins in the last ", opt.val_fraction, " of the text"), "",
          "a larger --val-fraction, or 0 for none");

    info.train.shards = train.finish(), info.train.tokens = train.tokens();
    info.val.shards = val.finish(), info.val.tokens = val.tokens();
    outputs_publish(info, prefix, json, old, {&train, &val});
    progress_clear();
    std::printf("%-10s %s, %s tokens: %s\n", "tokenizer", info.tokenizer_name.c_str(),
                grouped(info.vocab_size).c_str(), info.tokenizer.c_str());
    part_print("train", info.train);
    part_print("val", info.val);
    std::fprintf(stderr, "%s bytes of text in %.1f s, %s\n", grouped(reader.bytes_total()).c_str(),
                 meter.seconds(), meter.rate().c_str());
}

// ---- train-bpe

static bool is_tokenizer(const fs::path& path) {
    try {
        return tokenizer_open(path.string()) != nullptr;
    } catch (const Error&) {
        return false;
    }
}

// A tokenizer may be replaced by a new one; any other file is somebody's own.
static std::string tokenizer_out(const std::string& out) {
    CHECK(!out.empty(), Exit::Usage, "--out needs a name");
    fs::path path = out;
    std::error_code error;
    if (!path.has_filename() || fs::is_directory(path, error)) path /= "tokenizer.json";
    fs::create_directories(dir_of(path), error);
    CHECK(!error, Exit::Usage, "cannot make the folder of --out " + out, error.message());
    const bool there = fs::exists(path, error);
    CHECK(!error, Exit::Usage, "cannot look for --out " + path.string(), error.message());
    CHECK(!there || is_tokenizer(path), Exit::Usage,
          path.string() + " is in the way and is no tokenizer", "", "",
          "another --out, or remove it");
    return path.string();
}

void train_bpe_run(const Options& opt) {
    DocumentReader reader({opt.files, 0, opt.separator, gpt2_safe_cut});
    const std::string path = tokenizer_out(opt.out);
    Meter meter("train-bpe", reader.bytes_total());
    WordCounter counter;
    for (TextPart part; reader.next(part);) {
        counter.add(part.text);
        meter.update(reader.bytes_read());
    }
    CHECK(!counter.words().empty(), Exit::Usage, "no text to learn from",
          str(counted(reader.bytes_total(), "byte"), " in ",
              counted(int64_t(opt.files.size()), "file")));
    const BpeModel model = bpe_train(counter.words(), opt.vocab_size);
    file_replace(path, bpe_to_json(model));
    sync_dir(dir_of(path));

    const int size = int(model.vocab.bytes.size());
    progress_clear();
    if (size < opt.vocab_size)
        std::fprintf(stderr, "no pair of tokens comes twice any more: %s tokens, not %s\n",
                     grouped(size).c_str(), grouped(opt.vocab_size).c_str());
    std::printf("%-10s %s, %s tokens, %s merges: %s\n", "tokenizer", model.vocab.name.c_str(),
                grouped(size).c_str(), grouped(int64_t(model.merges.size())).c_str(), path.c_str());
    std::fprintf(stderr, "%s bytes of text, %s distinct words, in %.1f s\n",
                 grouped(reader.bytes_total()).c_str(),
                 grouped(int64_t(counter.words().size())).c_str(), meter.seconds());
}
