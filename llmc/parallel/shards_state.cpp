// The state of Shards as named pieces of host memory, and its way to a GPU and back.
#include <algorithm>

#include "llmc/core/rng.h"
#include "llmc/ops/cast.h"
#include "llmc/parallel/shards.h"

constexpr size_t kPiece = 1 << 18;  // elements rounded at a time: 1 MiB of floats stays in cache

template <class Elem, class Stream>
std::vector<TensorSlice> Shards<Elem, Stream>::slices(float* base, bool sliced, Pieces which) {
    std::vector<TensorSlice> out;
    for (const TensorPart& p : tensor_parts(layout_, which == Pieces::Held ? held_ : owned_, false))
        out.push_back({p.tensor, p.first, p.n, base + at(sliced, p)});
    return out;
}
template <class Elem, class Stream>
std::vector<TensorSlice> Shards<Elem, Stream>::master_slices(Pieces which) {
    return slices(host_masters_, host_masters_sliced(), which);
}
template <class Elem, class Stream>
std::vector<TensorSlice> Shards<Elem, Stream>::moment_m_slices(Pieces which) {
    return slices(host_m_, state_sliced(), which);
}
template <class Elem, class Stream>
std::vector<TensorSlice> Shards<Elem, Stream>::moment_v_slices(Pieces which) {
    return slices(host_v_, state_sliced(), which);
}

template <class Elem, class Stream>
void Shards<Elem, Stream>::state_to_host() {
    if constexpr (!kStateOnHost) {
        for (const Range& r : held_) {
            const size_t bytes = size_t(r.n) * sizeof(float);
            const int64_t state = at(state_sliced(), r);
            memory_to_host(host_masters_ + state, masters_ + at(masters_sliced(), r), bytes,
                           stream_);
            memory_to_host(host_m_ + state, m_ + state, bytes, stream_);
            memory_to_host(host_v_ + state, v_ + state, bytes, stream_);
        }
    }
}

template <class Elem, class Stream>
void Shards<Elem, Stream>::state_from_host(int64_t updates) {
    if constexpr (!kStateOnHost) {
        for (const Range& r : held_) {
            const size_t bytes = size_t(r.n) * sizeof(float);
            const int64_t state = at(state_sliced(), r);
            if (masters_)
                memory_from_host(masters_ + at(masters_sliced(), r), host_masters_ + state, bytes,
                                 stream_);
            if (config_.inference) continue;
            memory_from_host(m_ + state, host_m_ + state, bytes, stream_);
            memory_from_host(v_ + state, host_v_ + state, bytes, stream_);
        }
        if constexpr (kHasMasters) params_from_masters(updates);
    }
    gather();
}

template <class Elem, class Stream>
RoundingKey Shards<Elem, Stream>::rounding(const ParamTensor& tensor, int64_t first) const {
    return {config_.seed, name_hash(tensor.name), uint64_t(first), config_.stochastic_rounding};
}

template <class Elem, class Stream>
void Shards<Elem, Stream>::params_from_masters(int64_t updates) {
    if constexpr (kHasMasters) {
        if (!config_.inference) {
            for (const TensorPart& p : tensor_parts(layout_, held_, true))
                adamw_low_copy(params_ + at(params_sliced(), p), masters_ + at(masters_sliced(), p),
                               size_t(p.n), rounding(*p.tensor, p.first), updates, stream_);
            return;
        }
        // No masters on the device: rounded on the host, piece by piece.
        std::vector<Elem> piece(kPiece);
        for (int64_t i = 0; i < layout_.size; i += int64_t(piece.size())) {
            const size_t n = size_t(std::min(int64_t(piece.size()), layout_.size - i));
            cast(piece.data(), host_masters_ + i, n, CpuStream{});
            memory_from_host(params_ + i, piece.data(), n * sizeof(Elem), stream_);
        }
    }
}

#define STATE_FOR(Elem, Stream)                                                           \
    template std::vector<TensorSlice> Shards<Elem, Stream>::slices(float*, bool, Pieces); \
    template std::vector<TensorSlice> Shards<Elem, Stream>::master_slices(Pieces);        \
    template std::vector<TensorSlice> Shards<Elem, Stream>::moment_m_slices(Pieces);      \
    template std::vector<TensorSlice> Shards<Elem, Stream>::moment_v_slices(Pieces);      \
    template void Shards<Elem, Stream>::state_to_host();                                  \
    template void Shards<Elem, Stream>::state_from_host(int64_t);                         \
    template RoundingKey Shards<Elem, Stream>::rounding(const ParamTensor&, int64_t) const;
STATE_FOR(float, CpuStream)
FOR_CUDA(STATE_FOR(float, CudaStream) STATE_FOR(bf16, CudaStream))
