// llmc/io/tokens.h: token files on disk, and which sample comes when.
//
// A token file (shard) is a header of 256 int32 and then the ids, little-endian, as llm.c writes
// it:
//     word 0      word 1   word 2    ids
//     20240520    1        count     count x uint16   (GPT-2)
//     20240801    7        count     count x uint32   (LLaMA 3)
// Version 101 or 107: a mask follows the ids, (count + 7) / 8 bytes; bit i % 8 of byte i / 8 is 1
// where token i, as a target, is trained on. Without a mask all are.
// data/README.md shows one byte by byte. Definition: tokens.cpp. Proof: tokens_test.cpp.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/core/dtype.h"
#include "llmc/io/files.h"  // Fd
#include "llmc/parallel/comm.h"

constexpr int32_t kTokenMagic16 = 20240520, kTokenVersion16 = 1;
constexpr int32_t kTokenMagic32 = 20240801, kTokenVersion32 = 7;
constexpr int32_t kTokenMasked = 100;  // added to the version
constexpr int64_t kTokenHeaderBytes = 1024;
inline int64_t token_mask_bytes(int64_t tokens) {
    return (tokens + 7) / 8;
}

// One shard. Samples are read when they are needed, so memory does not grow with the data; and not
// through a mapping, where a file that is cut short or a disk that fails would be a bus error.
class TokenShard {
  public:
    // Checks header and size. Throws Error naming the file: Usage when there is no such file,
    // Damaged when its content is not a whole token file.
    static TokenShard open(const std::string& path);
    const std::string& path() const { return path_; }
    int64_t tokens() const { return tokens_; }
    bool masked() const { return masked_; }
    // Samples are windows of seq_len + 1 tokens at stride seq_len: the last token of one window is
    // the first of the next, so every token but the shard's first is a target exactly once. The
    // last (tokens - 1) % seq_len tokens of a shard fill no window and are left out.
    int64_t samples(int seq_len) const { return tokens_ > 0 ? (tokens_ - 1) / seq_len : 0; }
    // ids (n) = the tokens from `first` on. Throws Damaged on an id >= vocab_size.
    void read(int* ids, int64_t first, int64_t n, int64_t vocab_size) const;
    // trained (n) = for the tokens from `first` on, 1: trained on, or 0.
    void read_mask(uint8_t* trained, int64_t first, int64_t n) const;
    // A digest of some pages all over the file: tells data sets apart, without reading all of them.
    std::string fingerprint() const;
    // Streams through tokens first .. end - 1, throws Damaged on the first id >= vocab_size.
    void check_ids(int64_t vocab_size, int64_t first, int64_t end) const;

  private:
    TokenShard() = default;
    int64_t mask_begin() const {
        return kTokenHeaderBytes + tokens_ * int64_t(dtype_bytes(dtype_));
    }
    [[noreturn]] void refuse_id(int64_t token, uint32_t id, int64_t vocab_size) const;

    std::string path_;
    Fd fd_;
    int64_t bytes_ = 0, tokens_ = 0;
    bool masked_ = false;  // else all tokens are trained on
    Dtype dtype_ = Dtype::U16;
};

// The files that match any of the patterns, sorted by bytes, each once. Usage when one of the
// patterns matches none.
std::vector<std::string> token_files_matching(const std::vector<std::string>& patterns);

// All shards of a data set, as one list of samples.
class TokenFiles {
  public:
    // Opens every file that matches a shell pattern (*, ?, [..], {a,b}, ~), in byte order of their
    // names, whatever the locale. Each is checked as TokenShard says, ids included: every rank
    // reads its share of them, and all throw the same Error where one is no good. Collective.
    static TokenFiles open(const std::vector<std::string>& patterns, int64_t vocab_size,
                           Comm& comm);
    // By one rank alone.
    static TokenFiles open(const std::string& pattern, int64_t vocab_size) {
        return open({pattern}, vocab_size, *comm_self());
    }

    int64_t tokens() const;              // over all shards
    int64_t samples(int seq_len) const;  // over all shards; no window crosses from one to the next
    // x (seq_len) = the window's tokens, y (seq_len) = the same shifted by one: the targets, or
    // kIgnoreTarget for those that the mask leaves out.
    void read_sample(int64_t sample, int seq_len, int* x, int* y) const;
    const std::vector<TokenShard>& shards() const { return shards_; }

  private:
    void check_ids(int rank, int ranks) const;

    std::vector<TokenShard> shards_;
    int64_t vocab_size_ = 0;
};

// ---- the order of samples: a pure function of (seed, epoch, index)

// A pseudo-random permutation of 0..n-1, another one for every seed and epoch: for each i in
// 0..n-1 a different result in 0..n-1. Nothing is stored, whatever n is.
int64_t shuffled_index(uint64_t seed, int64_t epoch, int64_t i, int64_t n);

// Global index g = 0, 1, 2, ... counts the samples of the whole run, over all ranks and
// micro-batches. Epoch g / n is one shuffled pass over all n samples, so the sequence cannot depend
// on the number of ranks or on where a run was resumed, and within an epoch each sample comes once.
struct SampleOrder {
    uint64_t seed;
    int64_t n;  // samples in the data set, > 0
    int64_t sample(int64_t g) const { return shuffled_index(seed, g / n, g % n, n); }
};
