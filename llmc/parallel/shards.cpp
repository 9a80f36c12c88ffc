#include "llmc/parallel/shards.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>

#include "llmc/core/check.h"

constexpr int64_t kChunk = 1 << 18;  // elements converted at a time: 1 MiB of floats stays in cache

void fixed_sum_all_reduce(FixedSum& total, Comm& comm) {
    int64_t limbs[sizeof(FixedSum) / sizeof(int64_t)];
    static_assert(sizeof limbs == sizeof total, "a FixedSum is int64 limbs and nothing else");
    std::memcpy(limbs, &total, sizeof limbs);
    comm.all_reduce(limbs, std::size(limbs));
    std::memcpy(&total, limbs, sizeof limbs);
}

template <class Elem, class Stream>
Shards<Elem, Stream>::Shards(const ParamLayout& layout, const ShardsConfig& config, Comm& dp,
                             Memory<Stream>& memory)
    : layout_(layout), config_(config), dp_(dp), stream_(memory.stream()) {
    params_ = memory.template get<Elem>("parameters", "weights", layout.size);
    if (config.inference) return;
    m_ = memory.template get<float>("optimizer", "first moment", layout.size);
    v_ = memory.template get<float>("optimizer", "second moment", layout.size);
    bad_ = memory.template get<int>("workspace", "range flag", 1);
    square_sum_ = memory.template get<FixedSum>("workspace", "gradient norm", 1);
    grad_scale_ = memory.template get<float>("workspace", "gradient scale", 1);

    const int head = layout.head();
    if (!fixed_point()) {
        grads_ = memory.template get<float>("gradients", "fp32", layout.size);
        for (const ParamBlock& b : layout.blocks)
            grad_blocks_.push_back(grads_ ? grads_ + b.offset : nullptr);
        return;
    }
    int64_t layer = 0;
    for (int b = 1; b < head; b++) layer = std::max(layer, layout.blocks[b].size);
    const int64_t embedding = layout.blocks[0].size;
    sums_ = memory.template get<int64_t>("gradients", "fixed-point sums", layout.size);
    grads_ = memory.template get<float>("gradients", "one micro-batch of a block",
                                        embedding + layer + layout.blocks[head].size);
    chunk_ = memory.template get<float>("workspace", "gradient chunk", kChunk);
    for (int b = 0; b <= head; b++)
        grad_blocks_.push_back(!grads_     ? nullptr
                               : b == 0    ? grads_
                               : b == head ? grads_ + embedding + layer
                                           : grads_ + embedding);
}

template <class Elem, class Stream>
bool Shards<Elem, Stream>::fixed_point() const {
    return config_.reduction == Reduction::Canonical && config_.micro_batches > 1;
}

template <class Elem, class Stream>
Elem* Shards<Elem, Stream>::params_acquire(int block) {
    return params_ + layout_.blocks[block].offset;
}

template <class Elem, class Stream>
void Shards<Elem, Stream>::params_release(int) {}  // every rank keeps all parameters

template <class Elem, class Stream>
float* Shards<Elem, Stream>::grads_acquire(int block) {
    return grad_blocks_[block];
}

template <class Elem, class Stream>
void Shards<Elem, Stream>::grads_release(int block) {
    const ParamBlock& b = layout_.blocks[block];
    if (fixed_point())
        accumulate_fixed(sums_ + b.offset, grad_blocks_[block], bad_, size_t(b.size), stream_);
}

template <class Elem, class Stream>
void Shards<Elem, Stream>::reduce() {}  // one rank: its sum is the sum

// The reduced gradient of elements offset .. offset+n of a block, n <= kChunk in fixed point.
template <class Elem, class Stream>
float* Shards<Elem, Stream>::grad_chunk(const ParamBlock& block, int64_t offset, int64_t n) {
    if (!fixed_point()) return grads_ + block.offset + offset;
    fixed_to_float(chunk_, sums_ + block.offset + offset, size_t(n), stream_);
    return chunk_;
}

// Calls visit(tensor, offset in the whole, n, gradient) for every tensor, cut into chunks.
template <class Elem, class Stream>
template <class Visit>
void Shards<Elem, Stream>::for_each_chunk(Visit visit) {
    for (const ParamBlock& b : layout_.blocks)
        for (const ParamTensor& t : b.tensors) {
            const int64_t step = fixed_point() ? kChunk : t.size;
            for (int64_t i = 0; i < t.size; i += step) {
                const int64_t n = std::min(step, t.size - i), at = t.offset + i;
                visit(t, b.offset + at, n, grad_chunk(b, at, n));
            }
        }
}

template <class Elem, class Stream>
float Shards<Elem, Stream>::norm() {
    memory_zero(square_sum_, sizeof(FixedSum), stream_);
    for_each_chunk([&](const ParamTensor&, int64_t, int64_t n, const float* grad) {
        sum_of_squares(square_sum_, grad, size_t(n), stream_);
    });
    FixedSum sum;
    int bad = 0;
    memory_to_host(&sum, square_sum_, sizeof sum, stream_);
    memory_to_host(&bad, bad_, sizeof bad, stream_);
    memory_zero(bad_, sizeof(int), stream_);
    return bad ? std::numeric_limits<float>::quiet_NaN() : float(std::sqrt(fixed_sum_value(sum)));
}

template <class Elem, class Stream>
void Shards<Elem, Stream>::step(AdamW hyper, float grad_scale) {
    memory_from_host(grad_scale_, &grad_scale, sizeof grad_scale, stream_);
    for_each_chunk([&](const ParamTensor& t, int64_t at, int64_t n, float* grad) {
        AdamW h = hyper;
        if (!t.decay) h.weight_decay = 0;
        adamw_update(params_ + at, m_ + at, v_ + at, grad, grad_scale_, size_t(n), h, stream_);
    });
    if (fixed_point()) memory_zero(sums_, size_t(layout_.size) * sizeof(int64_t), stream_);
}

template <class Elem, class Stream>
void Shards<Elem, Stream>::gather() {}  // every rank updated all parameters

template <class Elem, class Stream>
std::vector<TensorSlice> Shards<Elem, Stream>::slices(float* base) {
    std::vector<TensorSlice> out;
    for (const ParamBlock& b : layout_.blocks)
        for (const ParamTensor& t : b.tensors)
            out.push_back({&t, 0, t.count(), base + b.offset + t.offset});
    return out;
}
template <class Elem, class Stream>
std::vector<TensorSlice> Shards<Elem, Stream>::master_slices() {
    return slices(params_);
}
template <class Elem, class Stream>
std::vector<TensorSlice> Shards<Elem, Stream>::moment_m_slices() {
    return slices(m_);
}
template <class Elem, class Stream>
std::vector<TensorSlice> Shards<Elem, Stream>::moment_v_slices() {
    return slices(v_);
}

template class Shards<float, CpuStream>;
