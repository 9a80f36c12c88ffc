// llmc/io/token_writer.cpp: token files under temporary names until all of them are complete.
#include "llmc/io/token_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "llmc/core/check.h"
#include "llmc/io/tokens.h"

static std::string temporary(const TokenShardInfo& shard) {
    return shard.path + ".tmp";
}

TokenWriter::TokenWriter(const std::string& prefix, int64_t vocab_size, int64_t shard_tokens)
    : prefix_(prefix),
      dtype_(token_dtype(vocab_size)),
      vocab_size_(vocab_size),
      shard_tokens_(shard_tokens) {
    CHECK(shard_tokens > 0 && shard_tokens <= kMaxShardTokens, Exit::Usage,
          "a bad number of tokens for a file", str(shard_tokens), str("1 to ", kMaxShardTokens));
}

TokenWriter::~TokenWriter() {
    for (size_t k = published_; k < shards_.size(); k++) unlink(temporary(shards_[k]).c_str());
}

void TokenWriter::mask_add(bool trained) {
    const int64_t i = shards_.back().tokens;
    if (mask_.empty() && trained) return;
    if (mask_.empty()) {  // the first that is left out: those before were all trained
        mask_.assign(size_t(i / 8), char(0xff));
        if (i % 8) mask_.push_back(char((1 << i % 8) - 1));
    }
    mask_.resize(size_t(i / 8) + 1);
    mask_.back() = char(mask_.back() | int(trained) << i % 8);
}

void TokenWriter::add(const int* ids, size_t n, const char* trained) {
    for (size_t i = 0; i < n; i++) {
        assert(ids[i] >= 0 && ids[i] < vocab_size_);
        if (file_ < 0) shard_begin();
        const uint32_t id = uint32_t(ids[i]);  // little-endian: the low bytes come first
        buffer_.append(reinterpret_cast<const char*>(&id), dtype_bytes(dtype_));
        mask_add(!trained || trained[i]);
        if (++shards_.back().tokens == shard_tokens_)
            shard_end();
        else if (buffer_.size() >= 1 << 20)
            flush();
    }
}

int64_t TokenWriter::tokens() const {
    int64_t n = 0;
    for (const TokenShardInfo& shard : shards_) n += shard.tokens;
    return n;
}

void TokenWriter::shard_begin() {
    char number[32];
    std::snprintf(number, sizeof number, "_%06zu.bin", shards_.size());
    shards_.push_back({prefix_ + number, 0, ""});
    const std::string path = temporary(shards_.back());
    file_ = Fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (file_ < 0) fail_errno("creating", path);
    digest_ = std::make_unique<Digest>();
    // The header is written last, when the count is known: until then it is zero, which no reader
    // takes for a token file.
    if (lseek(file_, kTokenHeaderBytes, SEEK_SET) < 0) fail_errno("writing", path);
}

void TokenWriter::flush() {
    digest_->update(buffer_.data(), buffer_.size());
    write_all(file_, buffer_, temporary(shards_.back()));
    buffer_.clear();
}

void TokenWriter::shard_end() {
    TokenShardInfo& shard = shards_.back();
    shard.masked = !mask_.empty();
    buffer_ += mask_;
    mask_.clear();
    flush();
    const std::string path = temporary(shard);
    int32_t head[kTokenHeaderBytes / 4] = {};
    head[0] = dtype_ == Dtype::U16 ? kTokenMagic16 : kTokenMagic32;
    head[1] = (dtype_ == Dtype::U16 ? kTokenVersion16 : kTokenVersion32) +
              (shard.masked ? kTokenMasked : 0);
    head[2] = int32_t(shard.tokens);
    if (lseek(file_, 0, SEEK_SET) < 0) fail_errno("writing", path);
    write_all(file_, std::string(reinterpret_cast<const char*>(head), sizeof head), path);
    sync_file(file_, path);
    file_.close(path);
    shard.digest = digest_->hex();
}

const std::vector<TokenShardInfo>& TokenWriter::finish() {
    if (file_ >= 0) shard_end();
    return shards_;
}

void TokenWriter::publish() {
    assert(file_ < 0);
    for (; published_ < shards_.size(); published_++)
        rename_path(temporary(shards_[published_]), shards_[published_].path);
}
