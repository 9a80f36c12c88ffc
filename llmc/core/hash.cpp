#include "llmc/core/hash.h"

#include <cstdio>
#include <cstring>
#include <new>

#include <xxhash.h>

std::string hex128(uint64_t high, uint64_t low) {
    char text[33];
    std::snprintf(text, sizeof text, "%016llx%016llx", (unsigned long long)high,
                  (unsigned long long)low);
    return text;
}

static std::string hash_hex(XXH128_hash_t h) {
    return hex128(h.high64, h.low64);
}

std::string digest_bytes(const void* data, size_t bytes) {
    return hash_hex(XXH3_128bits(data, bytes));
}

Digest::Digest() : state_(XXH3_createState()) {
    if (!state_) throw std::bad_alloc();
    XXH3_128bits_reset(static_cast<XXH3_state_t*>(state_));
}
Digest::~Digest() {
    XXH3_freeState(static_cast<XXH3_state_t*>(state_));
}
void Digest::update(const void* data, size_t bytes) {
    XXH3_128bits_update(static_cast<XXH3_state_t*>(state_), data, bytes);
}
std::string Digest::hex() const {
    return hash_hex(XXH3_128bits_digest(static_cast<const XXH3_state_t*>(state_)));
}

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): every input bit reaches every output bit.
static uint64_t mix(uint64_t z) {
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

TensorHash tensor_hash(const float* x, size_t n, uint64_t first) {
    uint64_t a = 0, b = 0;
#pragma omp parallel for schedule(static) reduction(+ : a, b)
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        std::memcpy(&bits, x + i, 4);
        const uint64_t h = mix((first + i) * 0x9e3779b97f4a7c15u + bits);
        a += h;
        b += mix(h ^ 0xd1342543de82ef95u);
    }
    return {a, b};
}
