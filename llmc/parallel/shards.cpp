#include "llmc/parallel/shards.h"

#include <algorithm>

#include "llmc/core/rng.h"
#include "llmc/ops/cast.h"

// Elements converted from fixed point at a time: 1 MiB of floats stays in a CPU's cache; a GPU
// wants few launches, and 32 MiB more do not matter to it.
template <class Stream>
constexpr int64_t kChunk = std::is_same_v<Stream, CpuStream> ? 1 << 18 : 1 << 23;

void fixed_sum_all_reduce(FixedSum* total, Comm& comm) {
    static_assert(sizeof(FixedSum) == 4 * sizeof(int64_t), "int64 limbs and nothing else");
    comm.all_reduce(static_cast<void*>(total), 4, Dtype::I64, ReduceOp::Sum);
}

// ---- what is allocated
template <class Elem, class Stream>
Shards<Elem, Stream>::Shards(const ParamLayout& layout, const ShardsConfig& config, Comm& dp,
                             Memory<Stream>& memory)
    : layout_(layout), config_(config), dp_(dp), stream_(memory.stream()) {
    params_ = memory.template get<Elem>("parameters", "weights", layout.size);
    state_create(memory);
    if (!config.inference) gradients_create(memory);
}

template <class Elem, class Stream>
void Shards<Elem, Stream>::state_create(Memory<Stream>& memory) {
    const auto state = [&](const char* name) {
        return memory.template get<float>("optimizer", name, layout_.size);
    };
    const auto on_host = [&](const char* name) {
        return memory.template get_host<float>(name, layout_.size);
    };
    if constexpr (!kHasMasters) masters_ = params_;
    if constexpr (!kStateOnHost) host_masters_ = on_host("copy of the weights");
    if (!config_.inference) {
        if constexpr (kHasMasters) masters_ = state("fp32 weights");
        m_ = state("first moment");
        v_ = state("second moment");
        if constexpr (!kStateOnHost) {
            host_m_ = on_host("copy of the first moment");
            host_v_ = on_host("copy of the second moment");
        }
    }
    if constexpr (kStateOnHost) host_masters_ = masters_, host_m_ = m_, host_v_ = v_;
}

template <class Elem, class Stream>
void Shards<Elem, Stream>::gradients_create(Memory<Stream>& memory) {
    bad_ = memory.template get<int>("workspace", "range flag", 1);
    square_sum_ = memory.template get<FixedSum>("workspace", "gradient norm, squared", 1);
    norm_ = memory.template get<float>("workspace", "gradient norm", 1);
    grad_scale_ = memory.template get<float>("workspace", "gradient scale", 1);

    const int head = layout_.head();
    if (!fixed_point()) {
        grads_ = memory.template get<float>("gradients", "fp32", layout_.size);
        for (const ParamBlock& b : layout_.blocks)
            grad_blocks_.push_back(grads_ ? grads_ + b.offset : nullptr);
        return;
    }
    int64_t layer = 0;
    for (int b = 1; b < head; b++) layer = std::max(layer, layout_.blocks[b].size);
    const int64_t embedding = layout_.blocks[0].size;
    sums_ = memory.template get<int64_t>("gradients", "fixed-point sums", layout_.size);
    grads_ = memory.template get<float>("gradients", "one micro-batch of a block",
                                        embedding + layer + layout_.blocks[head].size);
    chunk_ = memory.template get<float>("workspace", "gradient chunk", kChunk<Stream>);
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

// ---- around a block
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

// ---- once a step
template <class Elem, class Stream>
void Shards<Elem, Stream>::reduce() {}  // one rank: its sum is the sum

// The reduced gradient of elements offset .. offset+n of the whole, n <= kChunk in fixed point.
template <class Elem, class Stream>
float* Shards<Elem, Stream>::grad_chunk(int64_t offset, int64_t n) {
    if (!fixed_point()) return grads_ + offset;
    fixed_to_float(chunk_, sums_ + offset, size_t(n), stream_);
    return chunk_;
}

template <class Elem, class Stream>
void Shards<Elem, Stream>::clip(double most, FixedSum* loss) {
    memory_zero(square_sum_, sizeof(FixedSum), stream_);
    const int64_t step = fixed_point() ? kChunk<Stream> : layout_.size;
    for (int64_t i = 0; i < layout_.size; i += step) {
        const int64_t n = std::min(step, layout_.size - i);
        sum_of_squares(square_sum_, grad_chunk(i, n), size_t(n), stream_);
    }
    fixed_sum_all_reduce(square_sum_, dp_);
    fixed_sum_all_reduce(loss, dp_);
    gradient_clip(grad_scale_, norm_, square_sum_, loss, bad_, most, stream_);
}

template <class Elem, class Stream>
void Shards<Elem, Stream>::skip() {
    memory_zero(grad_scale_, sizeof(float), stream_);
}

template <class Elem, class Stream>
float Shards<Elem, Stream>::norm() {
    float norm = 0;
    memory_to_host(&norm, norm_, sizeof norm, stream_);
    return norm;
}

// The parameters are their own masters on the CPU, and in fp32.
static void update(float* masters, float*, float* m, float* v, float* grad, const float* scale,
                   size_t n, const AdamW& hyper, const RoundingKey&, CpuStream s) {
    adamw_update(masters, m, v, grad, scale, n, hyper, s);
}
template <class Elem>
static void update(float* masters, Elem* params, float* m, float* v, float* grad,
                   const float* scale, size_t n, const AdamW& hyper, const RoundingKey& key,
                   CudaStream s) {
    Elem* copy = std::is_same_v<Elem, float> ? nullptr : params;
    adamw_update(masters, copy, m, v, grad, scale, n, hyper, key, s);
}

template <class Elem, class Stream>
void Shards<Elem, Stream>::step(AdamW hyper) {
    for (const ParamBlock& b : layout_.blocks)
        for (const ParamTensor& t : b.tensors) {
            AdamW h = hyper;
            if (!t.decay) h.weight_decay = 0;
            const int64_t step = fixed_point() ? kChunk<Stream> : t.size;
            for (int64_t i = 0; i < t.size; i += step) {
                const int64_t n = std::min(step, t.size - i), at = b.offset + t.offset + i;
                update(masters_ + at, params_ + at, m_ + at, v_ + at, grad_chunk(at, n),
                       grad_scale_, size_t(n), h, rounding(t, i), stream_);
            }
        }
    if (fixed_point()) memory_zero(sums_, size_t(layout_.size) * sizeof(int64_t), stream_);
}

template <class Elem, class Stream>
void Shards<Elem, Stream>::gather() {}  // every rank updated all parameters

// ---- the state in host memory
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
    return slices(host_masters_);
}
template <class Elem, class Stream>
std::vector<TensorSlice> Shards<Elem, Stream>::moment_m_slices() {
    return slices(host_m_);
}
template <class Elem, class Stream>
std::vector<TensorSlice> Shards<Elem, Stream>::moment_v_slices() {
    return slices(host_v_);
}

template <class Elem, class Stream>
void Shards<Elem, Stream>::state_to_host() {
    if constexpr (!kStateOnHost) {
        const size_t bytes = size_t(layout_.size) * sizeof(float);
        memory_to_host(host_masters_, masters_, bytes, stream_);
        memory_to_host(host_m_, m_, bytes, stream_);
        memory_to_host(host_v_, v_, bytes, stream_);
    }
}

template <class Elem, class Stream>
void Shards<Elem, Stream>::state_from_host(int64_t updates) {
    if constexpr (!kStateOnHost) {
        const size_t bytes = size_t(layout_.size) * sizeof(float);
        if (masters_) memory_from_host(masters_, host_masters_, bytes, stream_);
        if (!config_.inference) {
            memory_from_host(m_, host_m_, bytes, stream_);
            memory_from_host(v_, host_v_, bytes, stream_);
        }
        if constexpr (kHasMasters) params_from_masters(updates);
    }
}

template <class Elem, class Stream>
RoundingKey Shards<Elem, Stream>::rounding(const ParamTensor& tensor, int64_t first) const {
    return {config_.seed, name_hash(tensor.name), uint64_t(first), config_.stochastic_rounding};
}

template <class Elem, class Stream>
void Shards<Elem, Stream>::params_from_masters(int64_t updates) {
    if constexpr (kHasMasters) {
        if (!config_.inference) {
            for (const ParamBlock& b : layout_.blocks)
                for (const ParamTensor& t : b.tensors)
                    adamw_low_copy(params_ + b.offset + t.offset, masters_ + b.offset + t.offset,
                                   size_t(t.size), rounding(t, 0), updates, stream_);
            return;
        }
        // No masters on the device: rounded on the host, piece by piece.
        std::vector<Elem> piece(size_t(kChunk<CpuStream>));
        for (int64_t i = 0; i < layout_.size; i += int64_t(piece.size())) {
            const size_t n = size_t(std::min(int64_t(piece.size()), layout_.size - i));
            cast(piece.data(), host_masters_ + i, n, CpuStream{});
            memory_from_host(params_ + i, piece.data(), n * sizeof(Elem), stream_);
        }
    }
}

template class Shards<float, CpuStream>;
FOR_CUDA(template class Shards<float, CudaStream>; template class Shards<bf16, CudaStream>;)
