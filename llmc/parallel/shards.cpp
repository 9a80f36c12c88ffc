#include "llmc/parallel/shards.h"

#include <algorithm>

#include "llmc/parallel/timeline.h"

static Dtype wire_dtype(Wire wire) {
    return wire == Wire::Bf16 ? Dtype::BF16 : Dtype::F16;
}

// Elements converted from fixed point at a time: 1 MiB of floats stays in a
// CPU's cache; a GPU wants few launches, and 32 MiB more do not matter to it.
template <class Stream>
constexpr int64_t kChunk = std::is_same_v<Stream, CpuStream> ? 1 << 18 : 1 << 23;

void fixed_sum_all_reduce(FixedSum* total, Comm& comm) {
    static_assert(sizeof(FixedSum) == 4 * sizeof(int64_t), "int64 limbs and nothing else");
    comm.all_reduce(static_cast<void*>(total), 4, Dtype::I64, ReduceOp::Sum, "exact sum");
}

Slicing shards_slicing(const ParamLayout& layout, const ShardsConfig& config, int ranks) {
    const bool within_blocks = config.zero >= 2 && ranks > 1;
    // What is sent: fixed point where whole sums meet, else fp32, or half of that.
    const int width = shards_fixed_point(config) && !within_blocks ? 8
                      : config.wire == Wire::Fp32                  ? 4
                                                                   : 2;
    return slicing(layout, ranks, within_blocks, config.bucket_bytes, width);
}

// ---- what is allocated
static CommQueue queue_for(CpuStream, bool overlap, Comm&) {
    return CommQueue(overlap);
}
FOR_CUDA(static StreamQueue queue_for(CudaStream s, bool overlap, Comm& dp) {
    return StreamQueue(overlap, s, dp.stream());
})

template <class Elem, class Stream>
Shards<Elem, Stream>::Shards(const ParamLayout& layout, const ShardsConfig& config, Comm& dp,
                             Memory<Stream>& memory)
    : layout_(layout),
      config_(config),
      limit_(grad_limit(config.micro_batches)),
      dp_(dp),
      stream_(memory.stream()),
      queue_(queue_for(stream_, config.overlap && dp.size() > 1 && !config.inference, dp)) {
    if (config_.inference) config_.zero = 0;
    slicing_ = shards_slicing(layout_, config_, dp.size());
    owned_ = owned_ranges(slicing_, dp.rank());
    held_ = state_sliced() ? owned_ : std::vector<Range>{{0, layout_.size, 0}};

    params_ =
        get_sent<Elem>(memory, "parameters", "weights", size_if(params_sliced()), state_sliced());
    if (params_sliced()) gathered_create(memory);
    state_create(memory);
    if (!config.inference) gradients_create(memory), wire_create(memory);
}

// Memory that is sent from and received into, where it is, is registered.
template <class Elem, class Stream>
template <class T>
T* Shards<Elem, Stream>::get_sent(Memory<Stream>& memory, const char* kind, const char* name,
                                  int64_t count, bool sent) {
    T* data = memory.template get<T>(kind, name, count);
    if (!data || !many() || !sent) return data;
    if (auto handle = dp_.memory_register(data, size_t(count) * sizeof(T), name))
        registered_.push_back(handle);
    return data;
}

template <class Elem, class Stream>
void Shards<Elem, Stream>::state_create(Memory<Stream>& memory) {
    const int64_t size = size_if(state_sliced());
    const auto state = [&](const char* name) {
        return memory.template get<float>("optimizer", name, size);
    };
    const auto on_host = [&](const char* name) {
        return memory.template get_host<float>(name, size);
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

static int64_t largest_layer(const ParamLayout& layout) {
    int64_t size = 0;
    for (int b = 1; b < layout.head(); b++) size = std::max(size, layout.blocks[b].size);
    return size;
}

template <class Elem, class Stream>
void Shards<Elem, Stream>::gradients_create(Memory<Stream>& memory) {
    bad_ = memory.template get<int>("workspace", "range flag", 1);
    square_sum_ = memory.template get<FixedSum>("workspace", "gradient norm, squared", 1);
    norm_ = memory.template get<float>("workspace", "gradient norm", 1);
    grad_scale_ = memory.template get<float>("workspace", "gradient scale", 1);

    const int64_t size = size_if(grads_sliced());
    if (fixed_point()) {
        sums_ = get_sent<int64_t>(memory, "gradients", "fixed-point sums", size, !grads_sliced());
        chunk_ = memory.template get<float>("workspace", "gradient chunk", kChunk<Stream>);
    } else {
        grads_ = get_sent<float>(memory, "gradients", "fp32", size, !grads_sliced());
    }
    if (!fixed_point() && !grads_sliced()) return;

    const int64_t layer = largest_layer(layout_), embedding = layout_.blocks[0].size;
    const int64_t layers = grads_sliced() ? 2 * layer : layer;
    float* blocks =
        get_sent<float>(memory, "gradients", "one micro-batch of a block",
                        embedding + layers + layout_.blocks.back().size, grads_sliced());
    if (blocks)
        grad_places_ = {blocks, blocks + embedding, blocks + embedding + layer,
                        blocks + embedding + layers};
}

// What gradients pass through on their way to their owners.
template <class Elem, class Stream>
void Shards<Elem, Stream>::wire_create(Memory<Stream>& memory) {
    if (!many()) return;
    int64_t n = 0, each = 0;
    for (const Bucket& b : slicing_.buckets) n = std::max(n, b.n), each = std::max(each, b.each);
    if (wire_16()) {
        wire_ = get_sent<uint16_t>(memory, "workspace", "gradients in 16 bits", n, true);
        most_ = memory.template get<int32_t>("workspace", "largest gradient", 1);
    }
    if (kStateOnHost || !(wire_16() || grads_sliced())) return;
    room_ = memory.template get<char>("workspace", "gradients of other ranks",
                                      each * (dp_.size() - 1) * (wire_16() ? 2 : 4));
}

template <class Elem, class Stream>
void Shards<Elem, Stream>::gathered_create(Memory<Stream>& memory) {
    const int64_t layer = largest_layer(layout_), embedding = layout_.blocks[0].size;
    Elem* blocks = memory.template get<Elem>("parameters", "gathered blocks",
                                             embedding + 2 * layer + layout_.blocks.back().size);
    if (!blocks) return;
    const int64_t offsets[] = {0, embedding, embedding + layer, embedding + 2 * layer};
    for (int i = 0; i < 4; i++) gathered_[i].data = blocks + offsets[i];
}

template <class Elem, class Stream>
bool Shards<Elem, Stream>::fixed_point() const {
    return shards_fixed_point(config_);
}

// The buckets that lie inside a block, where buckets end with blocks.
template <class Elem, class Stream>
std::vector<const Bucket*> Shards<Elem, Stream>::buckets_of(int block) const {
    const ParamBlock& b = layout_.blocks[block];
    std::vector<const Bucket*> found;
    for (const Bucket& bucket : slicing_.buckets)
        if (bucket.first >= b.offset && bucket.first < b.offset + b.size) found.push_back(&bucket);
    return found;
}

// ---- around a block: parameters
template <class Elem, class Stream>
Elem* Shards<Elem, Stream>::params_acquire(int block) {
    if (!params_sliced()) return params_ + layout_.blocks[block].offset;
    Gathered& g = gathered_[place(block)];
    if (g.block != block) gather_block(block);
    queue_.wait(g.ticket);
    g.users++;
    prefetch_after(block);
    return g.data;
}

template <class Elem, class Stream>
void Shards<Elem, Stream>::params_release(int block) {
    if (!params_sliced()) return;
    Gathered& g = gathered_[place(block)];
    if (--g.users == 0) g.block = -1;
}

template <class Elem, class Stream>
void Shards<Elem, Stream>::gather_block(int block) {
    Gathered& g = gathered_[place(block)];
    g.block = block;
    g.ticket = queue_.submit([this, block, to = g.data] {
        for (const Bucket* b : buckets_of(block))
            dp_.all_gather(to + (b->first - layout_.blocks[block].offset), params_ + b->local,
                           b->slices(), "parameters of a block");
    });
}

// Starts to gather the layer that came next when the last two were these.
// Nothing is gathered that may wait for an update in between: a step ends with
// the first layer.
template <class Elem, class Stream>
void Shards<Elem, Stream>::prefetch_after(int block) {
    followed_[{acquired_[0], acquired_[1]}] = block;
    acquired_[0] = acquired_[1], acquired_[1] = block;
    const auto next = followed_.find({acquired_[0], acquired_[1]});
    if (next == followed_.end() || next->second == 0) return;
    const Gathered& g = gathered_[place(next->second)];
    if (g.users == 0 && g.block != next->second) gather_block(next->second);
}

// ---- around a block: gradients
template <class Elem, class Stream>
float* Shards<Elem, Stream>::grads_acquire(int block) {
    if (!grad_places_[0]) return grads_ + layout_.blocks[block].offset;
    queue_.wait(grad_tickets_[place(block)]);
    return grad_places_[place(block)];
}

template <class Elem, class Stream>
void Shards<Elem, Stream>::grads_release(int block) {
    const ParamBlock& b = layout_.blocks[block];
    const bool last = micro_batch_ + 1 == micro_batches_each(config_.micro_batches, dp_.size());
    if (grads_sliced()) {
        send_block(block);
    } else {
        if (fixed_point()) {
            float* grads = grad_places_[place(block)];
            accumulate_fixed(sums_ + b.offset, grads, limit_, bad_, size_t(b.size), stream_);
        }
        if (many() && last) send_complete_buckets(b.offset);
    }
    if (block == 0) micro_batch_++;
}

// All gradients from `first` on are in: so are the buckets that begin there or
// behind.
template <class Elem, class Stream>
void Shards<Elem, Stream>::send_complete_buckets(int64_t first) {
    for (; next_bucket_ < slicing_.buckets.size(); next_bucket_++) {
        const Bucket& bucket = slicing_.buckets[next_bucket_];
        if (bucket.first < first) return;
        queue_.submit([this, &bucket] { send_bucket(bucket); });
    }
}

template <class Elem, class Stream>
void Shards<Elem, Stream>::send_bucket(const Bucket& bucket) {
    if (wire_16()) return send_bucket_16(bucket);
    const char* what = "gradients";
    const auto send = [&](auto* all) {
        if (state_sliced())
            dp_.reduce_scatter(all + bucket.slices().begin(dp_.rank()), all, bucket.slices(),
                               ReduceOp::Sum, what);
        else
            dp_.all_reduce(all, size_t(bucket.n), ReduceOp::Sum, what);
    };
    if (fixed_point())
        send(sums_ + bucket.first);
    else
        send(grads_ + bucket.first);
}

// Every rank sends one micro-batch's gradient of a block to the owners, who add
// all of them to their sums. What travels is fp32 or less: half of what whole
// fixed-point sums would be.
template <class Elem, class Stream>
void Shards<Elem, Stream>::send_block(int block) {
    float* grads = grad_places_[place(block)];
    grad_tickets_[place(block)] = queue_.submit([this, block, grads] {
        const ParamBlock& b = layout_.blocks[block];
        for (const Bucket* bucket : buckets_of(block))
            send_block_bucket(*bucket, grads + (bucket->first - b.offset));
        memory_zero(grads, size_t(b.size) * sizeof(float), queue_.stream());
    });
}

template <class Elem, class Stream>
void Shards<Elem, Stream>::send_block_bucket(const Bucket& bucket, float* grads) {
    if (wire_16()) return wire_reduce_scatter(grads, bucket, grads_ + bucket.local, false);
    const auto take = [&](float* x, size_t first, size_t n) {
        const size_t to = size_t(bucket.local) + first;
        if (fixed_point())
            accumulate_fixed(sums_ + to, x, limit_, bad_, n, queue_.stream());
        else
            accumulate_float(grads_ + to, x, n, queue_.stream());
    };
    dp_.template all_to_all<float>(grads, bucket.slices(), take, "gradients of a block", room_);
}

// ---- 16 bits on the way
// All ranks scale alike, by the largest of all.
template <class Elem, class Stream>
void Shards<Elem, Stream>::wire_scale(const float* x, size_t n) {
    if (config_.wire != Wire::Fp16) return;
    memory_zero(most_, sizeof *most_, queue_.stream());
    wire_most(most_, x, n, queue_.stream());
    dp_.all_reduce(static_cast<void*>(most_), 1, Dtype::I32, ReduceOp::Max, "largest gradient");
}

// sum (this rank's slice) += what all ranks send of it, each rounded once. The sum may lie in
// `all`, and then begins at zero: its addends are in the wire's format by then.
template <class Elem, class Stream>
void Shards<Elem, Stream>::wire_reduce_scatter(const float* all, const Bucket& bucket, float* sum,
                                               bool from_zero) {
    const Wire wire = config_.wire;
    const Stream s = queue_.stream();
    wire_scale(all, size_t(bucket.n));
    wire_pack(wire_, all, size_t(bucket.n), wire, most_, dp_.size(), s);
    if (from_zero) memory_zero(sum, bucket.slices().count(dp_.rank()) * sizeof(float), s);
    const auto take = [&](void* values, size_t first, size_t n) {
        wire_add(sum + first, static_cast<uint16_t*>(values), n, wire, most_, dp_.size(), s);
    };
    dp_.all_to_all(wire_, bucket.slices(), wire_dtype(wire), take, "gradients in 16 bits", room_);
}

// The owner's sum takes the place of its addends; rounded, it is what everybody gets.
template <class Elem, class Stream>
void Shards<Elem, Stream>::send_bucket_16(const Bucket& bucket) {
    const Slices slices = bucket.slices();
    const size_t begin = slices.begin(dp_.rank()), n = slices.count(dp_.rank());
    const Stream s = queue_.stream();
    float *all = grads_ + bucket.first, *mine = all + begin;
    wire_reduce_scatter(all, bucket, mine, true);
    wire_pack(wire_ + begin, mine, n, config_.wire, most_, dp_.size(), s);
    if (state_sliced()) {
        wire_unpack(mine, wire_ + begin, n, config_.wire, most_, dp_.size(), s);
    } else {
        dp_.all_gather(wire_, wire_ + begin, slices, wire_dtype(config_.wire), "sums in 16 bits");
        wire_unpack(all, wire_, size_t(bucket.n), config_.wire, most_, dp_.size(), s);
    }
}

// ---- once a step
template <class Elem, class Stream>
void Shards<Elem, Stream>::reduce() {
    queue_.drain();
    micro_batch_ = 0, next_bucket_ = 0;
}

// The reduced gradient at elements offset .. offset+n of the sums, n <= kChunk
// in fixed point.
template <class Elem, class Stream>
float* Shards<Elem, Stream>::grad_chunk(int64_t offset, int64_t n) {
    if (!fixed_point()) return grads_ + offset;
    fixed_to_float(chunk_, sums_ + offset, size_t(n), stream_);
    return chunk_;
}

template <class Elem, class Stream>
void Shards<Elem, Stream>::clip(double most, FixedSum* loss) {
    memory_zero(square_sum_, sizeof(FixedSum), stream_);
    for (const Range& r : owned_) {
        const int64_t step = fixed_point() ? kChunk<Stream> : r.n;
        for (int64_t i = 0; i < r.n; i += step) {
            const int64_t n = std::min(step, r.n - i);
            sum_of_squares(square_sum_, grad_chunk(at(grads_sliced(), r) + i, n), size_t(n),
                           stream_);
        }
    }
    queue_.run([&] {
        fixed_sum_all_reduce(square_sum_, dp_);
        fixed_sum_all_reduce(loss, dp_);
        dp_.all_reduce(static_cast<void*>(bad_), 1, Dtype::I32, ReduceOp::Max, "range flag");
    });
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
    dp_.check_alive();
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
    const TimelineScope scope("update", stream_);
    for (const TensorPart& p : tensor_parts(layout_, held_, true)) {
        AdamW h = hyper;
        if (!p.tensor->decay) h.weight_decay = 0;
        const int64_t step = fixed_point() ? kChunk<Stream> : p.n;
        for (int64_t i = 0; i < p.n; i += step) {
            const int64_t n = std::min(step, p.n - i), state = at(state_sliced(), p) + i;
            update(masters_ + at(masters_sliced(), p) + i, params_ + at(params_sliced(), p) + i,
                   m_ + state, v_ + state, grad_chunk(at(grads_sliced(), p) + i, n), grad_scale_,
                   size_t(n), h, rounding(*p.tensor, p.first + i), stream_);
        }
    }
    // AdamW has zeroed what it used; what it did not use are other ranks' slices,
    // and the integers.
    const size_t size = size_t(size_if(grads_sliced()));
    if (fixed_point())
        memory_zero(sums_, size * sizeof(int64_t), stream_);
    else if (state_sliced() && !grads_sliced())
        memory_zero(grads_, size * sizeof(float), stream_);
}

template <class Elem, class Stream>
void Shards<Elem, Stream>::gather() {
    for (Gathered& g : gathered_) g.block = -1;
    if (!state_sliced() || params_sliced()) return;
    queue_.run([this] {
        for (const Bucket& b : slicing_.buckets) {
            Elem* all = params_ + b.first;
            dp_.all_gather(all, all + b.slices().begin(dp_.rank()), b.slices(), "parameters");
        }
    });
}

template class Shards<float, CpuStream>;
FOR_CUDA(template class Shards<float, CudaStream>; template class Shards<bf16, CudaStream>;)
