// llmc/core/hash.h: digests of files (XXH3, 128 bits) and of tensors spread over ranks.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

// 128 bits as 32 hexadecimal digits.
std::string hex128(uint64_t high, uint64_t low);

// XXH3-128 of bytes, as 32 hexadecimal digits.
std::string digest_bytes(const void* data, size_t bytes);

// The same over a stream of pieces.
class Digest {
  public:
    Digest();
    ~Digest();
    Digest(const Digest&) = delete;
    Digest& operator=(const Digest&) = delete;
    void update(const void* data, size_t bytes);
    std::string hex() const;

  private:
    void* state_;
};

// A hash of a tensor that does not depend on how it is cut: each element's 32 bits are mixed with
// its global index, and the mixed words are added modulo 2^64 (two independent sums). Ranks hash
// their own slices and add; the sum is the hash of the whole.
struct TensorHash {
    uint64_t a = 0, b = 0;
    void add(const TensorHash& other) { a += other.a, b += other.b; }
    bool operator==(const TensorHash&) const = default;
};
TensorHash tensor_hash(const float* x,           // (n)
                       size_t n, uint64_t first  // global index of x[0] in its tensor
);
