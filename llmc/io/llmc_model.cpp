#include "llmc/io/llmc_model.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "llmc/core/check.h"
#include "llmc/core/plural.h"
#include "llmc/io/file_runs.h"
#include "llmc/io/files.h"

namespace {
constexpr int32_t kMagic = 20240326, kVersionF32 = 3, kVersionBf16 = 5;
constexpr int kHeaderWords = 256;
constexpr int64_t kChunk = 1 << 20;  // elements looked at together

// A file that is gone at the end, unless it has got another name.
struct Temporary {
    std::string path;
    ~Temporary() { std::remove(path.c_str()); }
};

// The file's order: each tensor of the embedding, then tensor i of every layer for i = 0..11, then
// the head's.
std::vector<const ParamTensor*> file_order(const ParamLayout& layout) {
    std::vector<const ParamTensor*> order;
    const auto& blocks = layout.blocks;
    const int layers = layout.head() - layout.layer(0);
    for (const ParamTensor& t : blocks[layout.embedding()].tensors) order.push_back(&t);
    for (size_t i = 0; i < blocks[layout.layer(0)].tensors.size(); i++)
        for (int l = 0; l < layers; l++) order.push_back(&blocks[layout.layer(l)].tensors[i]);
    for (const ParamTensor& t : blocks[layout.head()].tensors) order.push_back(&t);
    return order;
}

// Bytes of the file that the header promises, in 128 bits: no header can make it wrap.
__int128 file_bytes(const LlmcModelHeader& h) {
    const __int128 L = h.L, C = h.C, Vp = h.Vp, T = h.max_T;
    const __int128 elements = Vp * C + T * C + L * (12 * C * C + 13 * C) + 2 * C;
    return kHeaderWords * 4 + elements * __int128(dtype_bytes(h.dtype));
}
}  // namespace

bool llmc_model_is(const std::string& path) {
    const Fd file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    int32_t magic = 0;
    return file >= 0 && ::pread(file, &magic, sizeof magic, 0) == sizeof magic && magic == kMagic;
}

LlmcModelHeader llmc_model_header(const std::string& path) {
    int32_t words[kHeaderWords] = {};
    const int64_t size = model_head_read(path, "a llm.c model file (.bin)", words, sizeof words);
    const bool whole = size >= int64_t(sizeof words);
    CHECK(whole && words[0] == kMagic, Exit::Damaged, path + " is no llm.c model file",
          whole ? str("magic ", words[0]) : counted(size, "byte"), str("magic ", kMagic));
    CHECK(words[1] == kVersionF32 || words[1] == kVersionBf16, Exit::Damaged,
          path + ": unknown version of the model file", str(words[1]), "3 (fp32) or 5 (bf16)");
    const LlmcModelHeader h{words[1] == kVersionF32 ? Dtype::F32 : Dtype::BF16,
                            words[2],
                            words[3],
                            words[4],
                            words[5],
                            words[6],
                            words[7]};
    for (auto [name, n] : {std::pair("max_seq_len", h.max_T),
                           {"vocab_size", h.V},
                           {"num_layers", h.L},
                           {"num_heads", h.H},
                           {"channels", h.C},
                           {"padded_vocab_size", h.Vp}})
        CHECK(n >= 1 && n <= 1 << 24, Exit::Damaged, str(path, ": ", name, " is out of range"),
              str(n), "1 to 16777216");
    CHECK(h.V <= h.Vp && h.C % h.H == 0, Exit::Damaged, path + ": impossible sizes",
          str("vocabulary ", h.V, " padded to ", h.Vp, ", width ", h.C, ", heads ", h.H));
    CHECK(file_bytes(h) == size, Exit::Damaged, path + ": wrong size for its header",
          counted(size, "byte"), str(double(file_bytes(h)), " bytes"),
          "an interrupted download or copy");
    return h;
}

TensorSource llmc_model_source(const std::string& path, const ParamLayout& layout) {
    const LlmcModelHeader h = llmc_model_header(path);
    const int64_t width = int64_t(dtype_bytes(h.dtype)), padding = int64_t(h.Vp - h.V) * h.C;
    FileRuns runs;
    int64_t at = kHeaderWords * 4;
    const std::vector<const ParamTensor*> order = file_order(layout);
    for (const ParamTensor* t : order) {
        runs[t->name] = {{0, t->count(), at}};
        at += t->count() * width;
        if (t == order[0]) {  // the file's own padding, which may differ from ours
            runs["padding"] = {{0, padding, at}};
            at += padding * width;
        }
    }
    const TensorSource source = file_runs_source(path, runs, h.dtype);
    ParamTensor zeros{};
    zeros.name = "padding";
    std::vector<float> step(size_t(std::min(kChunk, padding)));
    for (int64_t i = 0; i < padding; i += kChunk) {
        const int64_t n = std::min(kChunk, padding - i);
        source(zeros, i, n, step.data());
        CHECK(std::all_of(step.begin(), step.begin() + n, [](float x) { return x == 0; }),
              Exit::Damaged, path + ": the vocabulary's padding rows are not zero");
    }
    return source;
}

// Header and tensors.
static void contents_write(int file, const std::string& path, const TensorSource& source,
                           const ParamLayout& layout, const LlmcModelHeader& h) {
    const int32_t words[kHeaderWords] = {
        kMagic, h.dtype == Dtype::F32 ? kVersionF32 : kVersionBf16, h.max_T, h.V, h.L, h.H, h.C,
        h.Vp};
    write_exactly(file, words, sizeof words, 0, path);
    int64_t at = sizeof words;
    const auto put = [&](int64_t n, const FloatSource& floats) {
        floats_write(file, at, floats, n, h.dtype, path);
        at += n * int64_t(dtype_bytes(h.dtype));
    };
    const std::vector<const ParamTensor*> order = file_order(layout);
    for (const ParamTensor* t : order) {
        put(t->count(), [&](int64_t first, int64_t n, float* to) { source(*t, first, n, to); });
        const int64_t padding = t == order[0] ? int64_t(h.Vp - h.V) * h.C : 0;
        put(padding, [](int64_t, int64_t n, float* to) { std::fill(to, to + n, 0.f); });
    }
}

void llmc_model_write(const std::string& path, const TensorSource& source,
                      const ParamLayout& layout, LlmcModelHeader h) {
    struct stat there {};
    CHECK(stat(path.c_str(), &there) != 0 || !S_ISDIR(there.st_mode), Exit::Usage,
          "cannot write the model file " + path, "a directory", "the name of a file");
    const Temporary file_beside{path + ".tmp"};
    const std::string& tmp = file_beside.path;
    Fd file;
    try {
        file_remove(tmp);
        file = file_create(tmp);
    } catch (const Error& e) {  // whatever it is, another name may do
        fail(Exit::Usage, str("cannot write the model file: ", e.what()));
    }
    try {
        contents_write(file, tmp, source, layout, h);
        sync_file(file, tmp);  // on disk before it has its name
        file.close(tmp);
        rename_path(tmp, path);
    } catch (const Error& e) {
        if (e.code != Exit::Resource) throw;  // the source is damaged, and says so itself
        fail(e.code, str("cannot write the model file: ", e.what()), "", "",
             "what was there before is untouched");
    }
    sync_dir(dir_of(path));
}
