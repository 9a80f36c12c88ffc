// llmc/io/token_writer.h: writing token files, all of a data set or none.
//
// Files grow under temporary names. finish() completes them on the disk; publish() gives them their
// names; whoever is destroyed before that takes its files with it. Format: tokens.h.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "llmc/core/dtype.h"
#include "llmc/core/hash.h"
#include "llmc/io/files.h"

constexpr int64_t kMaxShardTokens = INT32_MAX;  // the header counts tokens in an int32

// The format for a vocabulary: uint16 where the ids fit, else uint32.
inline Dtype token_dtype(int64_t vocab_size) {
    return vocab_size <= UINT16_MAX + 1 ? Dtype::U16 : Dtype::U32;
}

struct TokenShardInfo {
    std::string path;  // its final name
    int64_t tokens = 0;
    std::string digest;  // of what lies in the file behind the header
    bool masked = false;
};

class TokenWriter {
  public:
    // Writes PREFIX_000000.bin, PREFIX_000001.bin, ..., each of shard_tokens tokens but the last.
    TokenWriter(const std::string& prefix, int64_t vocab_size, int64_t shard_tokens);
    ~TokenWriter();
    TokenWriter(const TokenWriter&) = delete;
    TokenWriter& operator=(const TokenWriter&) = delete;

    // trained (n), not 0 for the ids to train on; null: all. A file gets a mask if it needs one.
    void add(const int* ids, size_t n, const char* trained = nullptr);
    int64_t tokens() const;

    // No more tokens: all files are complete and on the disk, still under temporary names.
    const std::vector<TokenShardInfo>& finish();
    // Renames them, replacing files of the same names.
    void publish();

  private:
    void shard_begin();
    void shard_end();
    void flush();
    void mask_add(bool trained);

    const std::string prefix_;
    const Dtype dtype_;
    const int64_t vocab_size_, shard_tokens_;
    std::vector<TokenShardInfo> shards_;  // the last one is being written while file_ is open
    size_t published_ = 0;
    Fd file_;
    std::unique_ptr<Digest> digest_;
    std::string buffer_;  // bytes that are not yet in file_
    std::string mask_;    // of the shard so far; empty: all trained
};
