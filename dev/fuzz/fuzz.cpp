// dev/fuzz/fuzz.cpp: every own parser of files under libFuzzer: whatever the bytes are, it returns
// or throws Error, within the memory and time that the fuzzer allows.
//
//   FUZZ=safetensors build/fuzz/fuzz CORPUS_DIR -max_total_time=60
//   dev/fuzz/run.sh [SECONDS [TARGET...]]     all of them, with seeds (dev/fuzz/seeds.py)
//
// Any other exception, a sanitizer's report, 512 MB at once or 10 s for one input are findings.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "llmc/core/check.h"
#include "llmc/io/csv.h"
#include "llmc/io/data_info.h"
#include "llmc/io/llama2c_model.h"
#include "llmc/io/llmc_eval.h"
#include "llmc/io/llmc_model.h"
#include "llmc/io/manifest.h"
#include "llmc/io/safetensors.h"
#include "llmc/io/tokenizer.h"
#include "llmc/io/tokens.h"
#include "llmc/model/config.h"
#include "llmc/train/documents.h"
#include "llmc/train/eval_questions.h"
#include "llmc/train/options.h"
#include "llmc/train/version.h"

// The real one names the library of matrix products, which nothing here needs.
std::string version_text() {
    return "";
}

namespace {

// A folder of this process, in memory where that is possible. The same few files are written anew
// for every input.
struct Folder {
    std::string path = access("/dev/shm", W_OK) == 0 ? "/dev/shm/fuzz-XXXXXX" : "/tmp/fuzz-XXXXXX";
    Folder() {
        if (!mkdtemp(path.data())) std::abort();
    }
    ~Folder() { std::filesystem::remove_all(path); }
};
const std::string& folder() {
    static const Folder one;
    return one.path;
}

std::string file_of(const std::string& name, const std::string& bytes) {
    const std::string path = folder() + "/" + name;
    FILE* file = std::fopen(path.c_str(), "wb");
    if (!file || std::fwrite(bytes.data(), 1, bytes.size(), file) != bytes.size()) std::abort();
    std::fclose(file);
    return path;
}

// What can be done with a tokenizer that opened.
void tokenizer_use(Tokenizer& t) {
    const std::vector<int> ids = t.encode("Hello,  w\xc3\xb6rld\n\xff 123<|endoftext|>", true);
    t.decode(ids);
    t.json();
}

void safetensors_use(const SafeTensors& file) {
    for (const auto& [name, tensor] : file.tensors()) {
        float x[4];
        const int64_t n = tensor.count();
        file.read(name, 0, std::min<int64_t>(n, 4), x);
        file.read(name, std::max<int64_t>(n - 4, 0), std::min<int64_t>(n, 4), x);
    }
}

// Two files in one input: what is before the first line of "----" and what is behind it.
std::pair<std::string, std::string> halves(const std::string& in) {
    const size_t at = in.find("----\n");
    if (at == std::string::npos) return {in, ""};
    return {in.substr(0, at), in.substr(at + 5)};
}

void options(const std::string& in) {
    // Both are answered by a page of text on stdout.
    if (in.find("help") != std::string::npos || in.find("version") != std::string::npos) return;
    const std::string path = file_of("run.toml", in);
    const char* args[] = {"train_gpt", "--config", path.c_str()};
    options_parse(3, args);
}

void token_file(const std::string& in) {
    const TokenFiles files = TokenFiles::open(file_of("x.bin", in), 1000);
    for (int64_t i = 0; i < files.samples(3); i++) {
        int x[3], y[3];
        files.read_sample(i, 3, x, y);
    }
    for (const TokenShard& shard : files.shards()) shard.fingerprint();
}

void documents(const std::string& name, const std::string& in) {
    DocumentReader reader(
        {{file_of(name, in)}, 0.3, "##", [](std::string_view t) { return t.size(); }, 16});
    for (TextPart part; reader.next(part);) {
    }
}

void question_files(EvalTask task, const std::string& in) {
    const auto [text, examples] = halves(in);
    eval_questions(task, text, "x_test.csv", examples, examples.empty() ? 0 : 1);
}

const std::map<std::string, std::function<void(const std::string&)>>& targets() {
    static const std::map<std::string, std::function<void(const std::string&)>> table = {
        {"tokens", token_file},
        {"data_info",
         [](const std::string& in) {
             file_of("d.json", in);
             data_info_read(folder() + "/d");
         }},
        {"safetensors",
         [](const std::string& in) { safetensors_use(SafeTensors(file_of("x.safetensors", in))); }},
        {"safetensors_index",
         [](const std::string& in) {
             const auto [index, tensors] = halves(in);
             file_of("a.safetensors", tensors);
             safetensors_use(SafeTensors(file_of("model.safetensors.index.json", index)));
         }},
        {"config", [](const std::string& in) { model_config(file_of("config.json", in)); }},
        {"tokenizer_json",
         [](const std::string& in) { tokenizer_use(*tokenizer_from_json(in, "x")); }},
        {"tokenizer_gpt2",
         [](const std::string& in) {
             const auto [vocab, merges] = halves(in);
             file_of("vocab.json", vocab);
             file_of("merges.txt", merges);
             tokenizer_use(*tokenizer_open(folder()));
         }},
        {"tokenizer_bin",
         [](const std::string& in) {
             const auto t = tokenizer_open(file_of("tokenizer.bin", in));
             for (int id = 0; id < t->vocab_size(); id++) t->decode({id});
         }},
        {"manifest",
         [](const std::string& in) {
             // With its own digest, and with a right one, so that what is behind it is reached.
             try {
                 manifest_parse(in, "x");
             } catch (const Error&) {
             }
             nlohmann::json body = nlohmann::json::parse(in, nullptr, false);
             if (!body.is_object()) return;
             body.erase("digest");
             manifest_parse(manifest_seal(body), "x");
         }},
        {"options", options},
        {"llmc_model", [](const std::string& in) { llmc_model_header(file_of("x.bin", in)); }},
        {"llama2c_model",
         [](const std::string& in) { llama2c_model_header(file_of("x.bin", in)); }},
        {"llmc_eval", [](const std::string& in) { llmc_eval_parse(in, "x"); }},
        {"csv", [](const std::string& in) { csv_parse(in, "x"); }},
        {"mmlu", [](const std::string& in) { question_files(EvalTask::Mmlu, in); }},
        {"hellaswag", [](const std::string& in) { question_files(EvalTask::HellaSwag, in); }},
        {"hellaswag_harness",
         [](const std::string& in) { question_files(EvalTask::HellaSwagHarness, in); }},
        {"lambada", [](const std::string& in) { question_files(EvalTask::Lambada, in); }},
        {"arc", [](const std::string& in) { question_files(EvalTask::Arc, in); }},
        {"winogrande", [](const std::string& in) { question_files(EvalTask::WinoGrande, in); }},
        {"documents_jsonl", [](const std::string& in) { documents("x.jsonl", in); }},
        {"documents_text", [](const std::string& in) { documents("x.txt", in); }},
    };
    return table;
}

const std::function<void(const std::string&)>& target() {
    const char* name = std::getenv("FUZZ");
    const auto found = targets().find(name ? name : "");
    if (found != targets().end()) return found->second;
    for (const auto& [known, run] : targets()) std::printf("%s\n", known.c_str());
    std::fflush(stdout);
    std::_Exit(name ? 2 : 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static const auto& run = target();
    try {
        run(std::string(reinterpret_cast<const char*>(data), size));
    } catch (const Error&) {
        // Refused, as it should be.
    }
    return 0;
}
