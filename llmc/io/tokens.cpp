// llmc/io/tokens.cpp: opening, checking and reading token files; the order of samples.
#include "llmc/io/tokens.h"

#include <fcntl.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <utility>

#include "llmc/core/check.h"
#include "llmc/core/hash.h"
#include "llmc/core/plural.h"
#include "llmc/core/rng.h"
#include "llmc/core/round.h"
#include "llmc/io/checkpoint_agree.h"
#include "llmc/ops/classifier.h"  // kIgnoreTarget

static_assert(std::endian::native == std::endian::little, "token files are read as they lie");

// ---- one shard

constexpr const char* kWriteHint = "train_gpt tokenize writes token files";

// "magic 7", or where the file is text: "magic 1329865020 (the text '<!DO', a saved web page?)".
static std::string magic_text(int32_t magic) {
    unsigned char header[4];
    std::memcpy(header, &magic, 4);
    if (!std::all_of(header, header + 4, [](unsigned char c) { return std::isprint(c); }))
        return str("magic ", magic);
    return str("magic ", magic, " (the text '", std::string(header, header + 4),
               "', a saved web page?)");
}

TokenShard TokenShard::open(const std::string& path) {
    TokenShard s;
    s.path_ = path;
    s.fd_ = Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    CHECK(s.fd_ >= 0, Exit::Usage, "cannot open token file " + path, std::strerror(errno));
    struct stat info = {};
    CHECK(fstat(s.fd_, &info) == 0 && S_ISREG(info.st_mode), Exit::Usage,
          "cannot read token file " + path,
          S_ISDIR(info.st_mode) ? "a directory" : "something not a regular file", "a token file",
          "name files, as in '" + path + "/*_train_*.bin'");
    s.bytes_ = info.st_size;
    CHECK(s.bytes_ >= kTokenHeaderBytes, Exit::Damaged, "not a token file: " + path,
          str("a size of ", counted(s.bytes_, "byte")), "a header of 1024 bytes, then the tokens",
          kWriteHint);
    int32_t head[3];
    read_exactly(s.fd_, head, sizeof head, 0, path);
    CHECK(head[0] == kTokenMagic16 || head[0] == kTokenMagic32, Exit::Damaged,
          "not a token file: " + path,
          magic_text(head[0]) + str(" and a size of ", counted(s.bytes_, "byte")),
          str("magic ", kTokenMagic16, " (uint16) or ", kTokenMagic32, " (uint32)"), kWriteHint);
    s.dtype_ = head[0] == kTokenMagic16 ? Dtype::U16 : Dtype::U32;
    const int32_t version = s.dtype_ == Dtype::U16 ? kTokenVersion16 : kTokenVersion32;
    const bool masked = head[1] == version + kTokenMasked;
    CHECK(head[1] == version || masked, Exit::Damaged, "token file of an unknown version: " + path,
          str("version ", head[1]),
          str("version ", version, ", or ", version + kTokenMasked, " with a mask"));
    s.tokens_ = head[2];
    CHECK(s.tokens_ >= 0, Exit::Damaged, "damaged token file " + path,
          str("a count of ", counted(s.tokens_, "token"), " in its header"), "0 or more");
    const int64_t size = s.mask_begin() + (masked ? token_mask_bytes(s.tokens_) : 0);
    CHECK(s.bytes_ == size, Exit::Damaged, "damaged token file " + path,
          str("a size of ", counted(s.bytes_, "byte")),
          str(size, " bytes for the ",
              counted(s.tokens_, dtype_name(s.dtype_) + std::string(" token")),
              masked ? " and the mask" : "", " of its header"),
          "cut short, or still being written? fetch or tokenize it again");
    if (!masked) return s;
    s.masked_ = true;
    unsigned char last = 0;
    if (s.tokens_ % 8) read_exactly(s.fd_, &last, 1, size - 1, path);
    CHECK(last >> (s.tokens_ % 8) == 0, Exit::Damaged, "damaged token file " + path,
          "a mask with bits behind its last token", "zeros there", "tokenize it again");
    return s;
}

void TokenShard::refuse_id(int64_t token, uint32_t id, int64_t vocab_size) const {
    const int64_t offset = kTokenHeaderBytes + token * int64_t(dtype_bytes(dtype_));
    fail(Exit::Damaged, "an id outside the vocabulary in token file " + path_,
         str("id ", id, " at byte offset ", offset, " (token ", token, ")"),
         str("ids below ", vocab_size),
         "is this the tokenizer of the model? --vocab-size must cover the data");
}

template <class Id>
static uint32_t largest(const Id* ids, int64_t n) {
    uint32_t top = 0;
    for (int64_t i = 0; i < n; i++) top = std::max<uint32_t>(top, ids[i]);
    return top;
}

void TokenShard::read(int* ids, int64_t first, int64_t n, int64_t vocab_size) const {
    assert(first >= 0 && n >= 0 && first <= tokens_ - n);
    const size_t width = dtype_bytes(dtype_);
    const int64_t at = kTokenHeaderBytes + first * int64_t(width);
    if (dtype_ == Dtype::U16) {
        std::vector<uint16_t> from(static_cast<size_t>(n));
        read_exactly(fd_, from.data(), from.size() * width, at, path_);
        std::copy(from.begin(), from.end(), ids);
    } else {
        read_exactly(fd_, ids, size_t(n) * width, at, path_);
    }
    // Another program may have written to the file since check_ids().
    for (int64_t i = 0; i < n; i++)
        if (int64_t(uint32_t(ids[i])) >= vocab_size)
            refuse_id(first + i, uint32_t(ids[i]), vocab_size);
}

void TokenShard::read_mask(uint8_t* trained, int64_t first, int64_t n) const {
    std::fill(trained, trained + n, uint8_t(1));
    if (!masked_ || n == 0) return;
    const int64_t begin = first / 8, end = (first + n + 7) / 8;
    std::vector<uint8_t> bits(size_t(end - begin));
    read_exactly(fd_, bits.data(), bits.size(), mask_begin() + begin, path_);
    for (int64_t i = 0; i < n; i++)
        trained[i] = bits[size_t((first + i) / 8 - begin)] >> ((first + i) % 8) & 1;
}

std::string TokenShard::fingerprint() const {
    constexpr int64_t pages = 64, page = 4096;
    char bytes[page];
    Digest digest;
    for (int64_t i = 0; i < pages; i++) {
        const int64_t at = std::max<int64_t>(bytes_ - page, 0) * i / (pages - 1);
        const size_t n = size_t(std::min(page, bytes_ - at));
        read_exactly(fd_, bytes, n, at, path_);
        digest.update(bytes, n);
    }
    return digest.hex();
}

void TokenShard::check_ids(int64_t vocab_size, int64_t first, int64_t end) const {
    const int64_t width = int64_t(dtype_bytes(dtype_));
    if (dtype_ == Dtype::U16 && vocab_size > UINT16_MAX) return;
    std::vector<uint32_t> buffer(1 << 18);
    const int64_t capacity = int64_t(buffer.size()) * 4 / width;
    for (; first < end; first += capacity) {
        const int64_t n = std::min(capacity, end - first);
        read_exactly(fd_, buffer.data(), size_t(n * width), kTokenHeaderBytes + first * width,
                     path_);
        const auto* ids16 = reinterpret_cast<const uint16_t*>(buffer.data());
        const uint32_t* ids32 = buffer.data();
        const uint32_t top = width == 2 ? largest(ids16, n) : largest(ids32, n);
        if (int64_t(top) < vocab_size) continue;
        for (int64_t i = 0; i < n; i++) {
            const uint32_t id = width == 2 ? ids16[i] : ids32[i];
            if (int64_t(id) >= vocab_size) refuse_id(first + i, id, vocab_size);
        }
    }
}

// ---- all shards

std::vector<std::string> token_files_matching(const std::vector<std::string>& patterns) {
    std::vector<std::string> paths;
    for (const std::string& pattern : patterns) {
        glob_t found = {};
        const int flags = GLOB_NOSORT | GLOB_BRACE | GLOB_TILDE;
        const int rc = glob(pattern.c_str(), flags, nullptr, &found);
        if (rc == 0) paths.insert(paths.end(), found.gl_pathv, found.gl_pathv + found.gl_pathc);
        globfree(&found);
        CHECK(rc == 0, Exit::Usage, "no token files match '" + pattern + "'", "", "",
              "write some with: train_gpt tokenize FILE --tokenizer byte --out PREFIX");
    }
    std::sort(paths.begin(), paths.end());  // by bytes: glob's own order depends on the locale
    paths.erase(std::unique(paths.begin(), paths.end()), paths.end());  // patterns may overlap
    return paths;
}

TokenFiles TokenFiles::open(const std::vector<std::string>& patterns, int64_t vocab_size,
                            Comm& comm) {
    CHECK(vocab_size > 0, Exit::Usage, "the vocabulary must not be empty",
          str("a size of ", vocab_size));
    TokenFiles files;
    files.vocab_size_ = vocab_size;
    for (const std::string& path : token_files_matching(patterns))
        files.shards_.push_back(TokenShard::open(path));
    CHECK(files.tokens() > 0, Exit::Damaged, "no tokens in the token files",
          str(counted(int64_t(files.shards_.size()), "file"), " with 0 tokens, the first ",
              files.shards_[0].path()));
    const auto error = agree(comm, [&] { files.check_ids(comm.rank(), comm.size()); });
    if (error) throw *error;
    return files;
}

// This rank's share of all tokens, as if the shards lay end to end.
void TokenFiles::check_ids(int rank, int ranks) const {
    const int64_t each = ceil_div(tokens(), int64_t(ranks)), begin = each * rank;
    int64_t offset = 0;  // of the shard
    for (const TokenShard& shard : shards_) {
        shard.check_ids(vocab_size_, std::max<int64_t>(begin - offset, 0),
                        std::min(begin + each - offset, shard.tokens()));
        offset += shard.tokens();
    }
}

int64_t TokenFiles::tokens() const {
    int64_t n = 0;
    for (const TokenShard& shard : shards_) n += shard.tokens();
    return n;
}

int64_t TokenFiles::samples(int seq_len) const {
    CHECK(seq_len > 0, Exit::Usage, "a sample needs a length", str(seq_len), "1 or more");
    int64_t n = 0;
    for (const TokenShard& shard : shards_) n += shard.samples(seq_len);
    return n;
}

void TokenFiles::read_sample(int64_t sample, int seq_len, int* x, int* y) const {
    assert(sample >= 0 && sample < samples(seq_len));
    auto shard = shards_.begin();
    while (sample >= shard->samples(seq_len)) sample -= (shard++)->samples(seq_len);
    const int64_t first = sample * seq_len;
    shard->read(x, first, seq_len, vocab_size_);
    // y is x moved by one place, plus the one token that x does not have.
    std::copy(x + 1, x + seq_len, y);
    shard->read(y + seq_len - 1, first + seq_len, 1, vocab_size_);
    if (!shard->masked()) return;
    std::vector<uint8_t> trained(static_cast<size_t>(seq_len));
    shard->read_mask(trained.data(), first + 1, seq_len);
    for (int i = 0; i < seq_len; i++)
        if (!trained[size_t(i)]) y[i] = kIgnoreTarget;
}

// ---- order

// A Feistel network permutes pairs of half_bits-bit words, whatever its round function does: round
// r maps (left, right) to (right, left ^ f_r(right)), which can be undone. Its domain, a power of
// four, is larger than n, so results >= n are sent through again until one falls below n; on the
// cycle of the permutation that i lies on, this finds the next element below n, so it permutes
// 0..n-1 ("cycle walking"). Black and Rogaway 2002, "Ciphers with arbitrary finite domains",
// CT-RSA, sections 3 and 4. The domain is under 4 n + 64, so four rounds of walking are typical.
int64_t shuffled_index(uint64_t seed, int64_t epoch, int64_t i, int64_t n) {
    assert(0 <= i && i < n && epoch >= 0);
    constexpr int kRounds = 6;
    const int half_bits = std::max(3, (int(std::bit_width(uint64_t(n - 1))) + 1) / 2);
    const uint64_t half_mask = (uint64_t(1) << half_bits) - 1;
    const uint64_t stream = name_hash("sample order") + uint64_t(epoch) * kRounds;
    uint64_t at = uint64_t(i);
    do {
        uint64_t left = at >> half_bits, right = at & half_mask;
        for (int round = 0; round < kRounds; round++) {
            const uint64_t mixed =
                left ^ (random_bits(seed, stream + uint64_t(round), right) & half_mask);
            left = right;
            right = mixed;
        }
        at = left << half_bits | right;
    } while (at >= uint64_t(n));
    return int64_t(at);
}
