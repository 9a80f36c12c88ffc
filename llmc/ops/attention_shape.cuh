// llmc/ops/attention_shape.cuh: sizes of one attention call, and where heads lie in packed rows.
#pragma once
#include <cstddef>

#include "llmc/ops/kernel.cuh"

struct AttentionShape {
    int B, T, H, KV, HS;
    float scale;  // 1 / sqrt(HS)

    // Elements of a row of qkv and of out.
    __host__ __device__ __forceinline__ int packed() const { return (H + 2 * KV) * HS; }
    __host__ __device__ __forceinline__ int width() const { return H * HS; }

    // Offsets of row 0 of a sequence and head in qkv, in out, and in lse.
    __device__ __forceinline__ size_t query_at(int b, int h) const {
        return size_t(b) * T * packed() + size_t(h) * HS;
    }
    __device__ __forceinline__ size_t key_at(int b, int kv) const { return query_at(b, H + kv); }
    __device__ __forceinline__ size_t value_at(int b, int kv) const {
        return query_at(b, H + KV + kv);
    }
    __device__ __forceinline__ size_t out_at(int b, int h) const {
        return size_t(b) * T * width() + size_t(h) * HS;
    }
    __device__ __forceinline__ size_t lse_at(int b, int h) const { return (size_t(b) * H + h) * T; }
    // The key/value head that query head h reads.
    __device__ __forceinline__ int kv_head(int h) const { return h / (H / KV); }
};
