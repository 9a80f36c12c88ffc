// llmc/ops/kernel.cuh: what the kernels of this folder share: grids and guarded wide accesses.
//
// Wide accesses. A kernel sees its data as packets of 16 bytes or as quads of four elements, and
// gives each thread whole ones. Where every address is aligned a packet is one instruction; where
// one is not, or at a ragged end, the same thread handles the same elements one by one. So which
// thread adds what, and with it every bit of the result, depends on the sizes alone, never on where
// an array starts.
#pragma once
#include <cstddef>
#include <cstdint>

#include "llmc/core/backend.h"
#include "llmc/core/check.h"
#include "llmc/core/launch.cuh"
#include "llmc/core/packed.cuh"

// Number of blocks so that blocks * per_block >= n.
inline dim3 blocks_for(size_t n, size_t per_block) {
    const size_t blocks = ceil_div(n, per_block);
    CHECK(blocks <= 0x7fffffffu, Exit::Usage, "too many elements for one kernel launch",
          str(n, " elements, ", per_block, " a block"));
    return dim3(unsigned(blocks));
}

template <class... T>
bool all_aligned(size_t bytes, const T*... p) {
    return ((reinterpret_cast<uintptr_t>(p) % bytes == 0) && ...);
}

// May rows of C elements at these pointers be read and written by 16-byte packets?
template <class Elem, class... T>
bool rows_aligned(int C, const T*... p) {
    return C % (16 / int(sizeof(Elem))) == 0 && all_aligned(16, p...);
}

// ---- packets of a row: elements [c, c + 16 bytes) of a row of C; what lies beyond C reads as zero
template <bool kAligned, class Elem>
__device__ __forceinline__ Packed128<Elem> packet_load(const Elem* row, int c, int C) {
    if constexpr (kAligned) {
        return load128_streaming(row + c);
    } else {
        Packed128<Elem> out;
#pragma unroll
        for (int k = 0; k < out.size; k++) out[k] = c + k < C ? row[c + k] : as_elem<Elem>(0.f);
        return out;
    }
}

// The same for data that every row reads again, such as weights: kept in the caches.
template <bool kAligned, class Elem>
__device__ __forceinline__ Packed128<Elem> packet_load_shared(const Elem* row, int c, int C) {
    if constexpr (kAligned) {
        return load128(row + c);
    } else {
        return packet_load<false>(row, c, C);
    }
}

template <bool kAligned, class Elem>
__device__ __forceinline__ void packet_store(Elem* row, int c, int C, const Packed128<Elem>& x) {
    if constexpr (kAligned) {
        store128_streaming(row + c, x);
    } else {
#pragma unroll
        for (int k = 0; k < x.size; k++)
            if (c + k < C) row[c + k] = x[k];
    }
}

// ---- quads of a flat array: four elements, 16 bytes of float or 8 bytes of bf16. A warp's quads
// are consecutive, so its access fills whole 32-byte sectors for either type.
template <class T>
struct alignas(4 * sizeof(T)) Quad {
    T v[4];
    __device__ __forceinline__ T& operator[](int i) { return v[i]; }
    __device__ __forceinline__ const T& operator[](int i) const { return v[i]; }
};

namespace quad {
template <int kBytes>
struct Word;
template <>
struct Word<8> {
    using Type = int2;
};
template <>
struct Word<16> {
    using Type = int4;
};
}  // namespace quad

template <class T>
__device__ __forceinline__ Quad<T> quad_load(const T* p) {
    using Word = typename quad::Word<sizeof(Quad<T>)>::Type;
    const Word word = __ldcs(reinterpret_cast<const Word*>(p));
    Quad<T> out;
    memcpy(&out, &word, sizeof out);
    return out;
}
template <class T>
__device__ __forceinline__ void quad_store(T* p, const Quad<T>& x) {
    using Word = typename quad::Word<sizeof(Quad<T>)>::Type;
    Word word;
    memcpy(&word, &x, sizeof word);
    __stcs(reinterpret_cast<Word*>(p), word);
}
template <class T>
bool quad_aligned(const T* p) {
    return all_aligned(sizeof(Quad<T>), p);
}

// Quads of a row of C elements; what lies beyond C reads as zero and is not written.
template <bool kAligned, class T>
__device__ __forceinline__ Quad<T> row_quad_load(const T* row, int c, int C) {
    if constexpr (kAligned) {
        return quad_load(row + c);
    } else {
        Quad<T> out;
#pragma unroll
        for (int k = 0; k < 4; k++) out[k] = c + k < C ? row[c + k] : as_elem<T>(0.f);
        return out;
    }
}
template <bool kAligned, class T>
__device__ __forceinline__ void row_quad_store(T* row, int c, int C, const Quad<T>& x) {
    if constexpr (kAligned) {
        quad_store(row + c, x);
    } else {
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (c + k < C) row[c + k] = x[k];
    }
}
