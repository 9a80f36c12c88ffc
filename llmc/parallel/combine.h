// llmc/parallel/combine.h: one element-wise reduction over ranks, in the order of ranks.
#pragma once
#include <vector>

#include "llmc/core/check.h"
#include "llmc/parallel/comm.h"

// How elements of a type are combined. bf16 is added in fp32 and rounded once, at the end; integers
// wrap, which signed arithmetic may not.
template <class T>
struct Combine {
    using Wide = T;
    static Wide widen(T x) { return x; }
    static T narrow(Wide x) { return x; }
    static Wide add(Wide x, Wide y) { return x + y; }
};
template <>
struct Combine<bf16> : Combine<float> {
    static float widen(bf16 x) { return to_float(x); }
    static bf16 narrow(float x) { return to_bf16(x); }
};
template <>
inline int32_t Combine<int32_t>::add(int32_t x, int32_t y) {
    return int32_t(uint32_t(x) + uint32_t(y));
}
template <>
inline int64_t Combine<int64_t>::add(int64_t x, int64_t y) {
    return int64_t(uint64_t(x) + uint64_t(y));
}

constexpr size_t kCombineBlock = 512;  // elements at a time: the sums stay in the L1 cache

// to[0][i] = to[1][i] = ... = from[0][i] op from[1][i] op ...; what is written may be what is read.
// A NaN is the largest and the smallest, so that no rank loses sight of it.
template <class T>
void combine(const std::vector<void*>& to, const std::vector<const void*>& from, size_t n,
             ReduceOp op) {
    using C = Combine<T>;
    using Wide = typename C::Wide;
    Wide sum[kCombineBlock];
    for (size_t at = 0; at < n; at += kCombineBlock) {
        const size_t m = std::min(kCombineBlock, n - at);
        const auto each = [&](const void* rank, auto f) {
            const T* x = static_cast<const T*>(rank) + at;
            for (size_t i = 0; i < m; i++) sum[i] = f(sum[i], C::widen(x[i]));
        };
        each(from[0], [](Wide, Wide x) { return x; });
        for (size_t r = 1; r < from.size(); r++) {
            if (op == ReduceOp::Sum)
                each(from[r], [](Wide s, Wide x) { return C::add(s, x); });
            else if (op == ReduceOp::Max)
                each(from[r], [](Wide s, Wide x) { return s > x || s != s ? s : x; });
            else
                each(from[r], [](Wide s, Wide x) { return s < x || s != s ? s : x; });
        }
        for (void* place : to)
            for (size_t i = 0; i < m; i++) static_cast<T*>(place)[at + i] = C::narrow(sum[i]);
    }
}

inline void combine(const std::vector<void*>& to, const std::vector<const void*>& from, size_t n,
                    Dtype t, ReduceOp op) {
    const auto as = [&]<class T>(T) { combine<T>(to, from, n, op); };
    switch (t) {
        case Dtype::F32:
            return as(float());
        case Dtype::BF16:
            return as(bf16());
        case Dtype::F64:
            return as(double());
        case Dtype::I32:
            return as(int32_t());
        case Dtype::I64:
            return as(int64_t());
        default:
            fail(Exit::Usage, "no reduction of this type", dtype_name(t));
    }
}
