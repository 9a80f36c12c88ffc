// llmc/parallel/shards.h: who holds which slice of parameters, gradients and optimizer state, and
// when the slices meet.
//
// The training loop sees four calls: reduce, clip, step, gather. The layer loop sees two pairs:
// params_acquire / params_release around the use of a block's parameters, and grads_acquire /
// grads_release around the writing of its gradients.
//
// ZeRO (Rajbhandari et al. 2020, arXiv:1910.02054) says what is sliced over the dp ranks; slicing.h
// says how. One rank holds everything, whatever the stage.
//
// clang-format off
//   stage  a rank holds         gradients meet                      parameters meet
//   0      all                  all-reduce, last micro-batch        never: all update all
//   1      moments 1/N          reduce-scatter, last micro-batch    after the step
//   2      gradients 1/N too    all-to-all to owners, every one     after the step
//   3      parameters 1/N too   the same                            block by block, before each use
// clang-format on
//
// Communication of gradients runs behind backward (comm_queue.h), bucket by bucket, each as soon as
// its gradients are complete; stage 3 gathers the next block while this one computes. On the CPU it
// has a thread of its own, on a GPU a stream.
//
// Reduction::Canonical gives the same bits for every number of ranks and every order of
// micro-batches: each micro-batch's gradient becomes fixed point and is added as integers
// (llmc/ops/reduce_sums.h). A step of a single micro-batch has nothing to add and stays in fp32.
// Reduction::Fast adds in fp32, in whatever order.
//
// Wire::Bf16 and Fp16, in fast mode only, halve what is sent: every rank rounds what it sends to 16
// bits once (llmc/ops/wire.h), the owner of a slice adds what it receives, its own part rounded
// alike, in fp32 and in the order of ranks. In stages 0 and 1 a rank sends its sum of a step, and
// the total is rounded once more, so that it can be shown to all ranks in 16 bits and is the same
// number in both stages; in stages 2 and 3 it sends each micro-batch's gradient.
//
// On CUDA a model in bf16 has its parameters twice: fp32 masters, which the optimizer updates, and
// their rounded copy, which the layers read. Gradients are fp32 everywhere.
#pragma once
#include <array>
#include <map>
#include <memory>
#include <type_traits>
#include <vector>

#include "llmc/core/layout.h"
#include "llmc/core/memory.h"
#include "llmc/ops/adamw.h"
#include "llmc/ops/clip.h"
#include "llmc/ops/reduce_sums.h"
#include "llmc/ops/wire.h"
#include "llmc/parallel/comm.h"
#include "llmc/parallel/comm_queue.h"
#include "llmc/parallel/slicing.h"

enum class Reduction { Canonical, Fast };

struct ShardsConfig {
    int zero = 0;
    Reduction reduction = Reduction::Canonical;
    Wire wire = Wire::Fp32;
    int64_t micro_batches = 1;  // of one optimizer step, over all N ranks; each releases
                                // ceil(micro_batches / N), if need be one of zeros
    double bucket_bytes = 25e6;
    bool overlap = true;     // communicate behind backward
    bool inference = false;  // parameters alone: no gradients, no optimizer state, no slices
    // How a bf16 copy is rounded: to nearest, or up or down by chance, so that the mean is right;
    // the chance is a function of (seed, tensor, element, update).
    bool stochastic_rounding = false;
    uint64_t seed = 0;
};

inline bool shards_fixed_point(const ShardsConfig& c) {
    return c.reduction == Reduction::Canonical && c.micro_batches > 1;
}
// The slices that a run of so many ranks has.
Slicing shards_slicing(const ParamLayout& layout, const ShardsConfig& config, int ranks);

// Elements first .. first+count of the tensor lie at `data` in this rank's host memory.
struct TensorSlice {
    const ParamTensor* tensor;
    int64_t first, count;
    float* data;
};

// Held: everything this rank has, to be filled. Owned: over all ranks each element once, to be
// saved.
enum class Pieces { Held, Owned };

// total = sum over ranks: limbs are integers, so any collective adds them exactly. total lies in
// the memory that comm works on.
void fixed_sum_all_reduce(FixedSum* total, Comm& comm);

template <class Elem, class Stream>
class Shards {
  public:
    // dp works where the stream's memory lies (world_dp in llmc/parallel/world.h).
    Shards(const ParamLayout& layout, const ShardsConfig& config, Comm& dp, Memory<Stream>& memory);
    Shards(const Shards&) = delete;
    Shards& operator=(const Shards&) = delete;

    // ---- around the use of a block's parameters; the pointer is valid until the release
    // A block may be acquired again before it is released. All ranks acquire the same blocks in the
    // same order.
    Elem* params_acquire(int block);
    void params_release(int block);

    // ---- around the writing of a block's gradients, which are always +=
    // A block may be acquired more than once in a micro-batch (a tied head writes into the
    // embedding's gradient); it is released once, when all its gradients are in. Blocks are
    // released from the last to the first.
    float* grads_acquire(int block);
    void grads_release(int block);

    // ---- once a step, in this order; on CUDA all of it is queued, only norm() waits
    // The owner of each slice gets its sum over all ranks and micro-batches.
    void reduce();
    // The 2-norm of the whole gradient, from exact sums of squares of chunks: the same bits on
    // every rank and layout. The update will take the gradient times min(1, most / norm), or be
    // skipped where the norm or the loss is not finite (llmc/ops/clip.h). The loss, of this rank's
    // micro-batches on entry, is that of all ranks on return.
    void clip(double most, FixedSum* loss);
    // The coming update is skipped in any case.
    void skip();
    // One AdamW step on this rank's slices; matrices decay. The gradients are zero afterwards.
    void step(AdamW hyper);
    // Every rank gets the parameters that it will need.
    void gather();
    // What the last clip() found: NaN when an element is not finite, or a micro-batch's is out of
    // the fixed-point range.
    float norm();

    // ---- the state as named pieces of host memory, for initialisation and checkpoints
    // On the CPU the pieces are the state itself. On CUDA they are a copy: state_to_host() comes
    // before reading them. state_from_host() comes after writing them, on any backend and on all
    // ranks, with the number of updates behind the state (it decides the rounding of bf16
    // parameters).
    std::vector<TensorSlice> master_slices(Pieces which = Pieces::Held);  // what is updated, fp32
    std::vector<TensorSlice> moment_m_slices(Pieces which = Pieces::Held);
    std::vector<TensorSlice> moment_v_slices(Pieces which = Pieces::Held);
    void state_to_host();
    void state_from_host(int64_t updates);

    const ParamLayout& layout() const { return layout_; }
    // Of the communication since the last call: how long it took, how long it was waited for.
    CommQueue::Times take_comm_times() { return queue_.take_times(); }

  private:
    static constexpr bool kStateOnHost = std::is_same_v<Stream, CpuStream>;
    using Queue = std::conditional_t<kStateOnHost, CommQueue, StreamQueue>;
    static constexpr bool kHasMasters = !std::is_same_v<Elem, float>;

    // What is sliced, and where an element of a slice then lies.
    bool many() const { return dp_.size() > 1; }
    bool state_sliced() const { return many() && config_.zero >= 1; }
    bool grads_sliced() const { return many() && config_.zero >= 2; }
    bool params_sliced() const { return many() && config_.zero >= 3; }
    int64_t size_if(bool sliced) const { return sliced ? slicing_.local_size : layout_.size; }
    template <class R>  // Range or TensorPart
    int64_t at(bool sliced, const R& r) const {
        if constexpr (std::is_same_v<R, Range>)
            return sliced ? r.local : r.first;
        else
            return sliced ? r.local : r.whole;
    }
    bool masters_sliced() const { return kHasMasters ? state_sliced() : params_sliced(); }
    bool host_masters_sliced() const { return kStateOnHost ? masters_sliced() : state_sliced(); }

    bool fixed_point() const;
    bool wire_16() const { return config_.wire != Wire::Fp32; }
    void state_create(Memory<Stream>& memory);
    void gradients_create(Memory<Stream>& memory);
    void wire_create(Memory<Stream>& memory);
    void gathered_create(Memory<Stream>& memory);
    template <class T>
    T* get_sent(Memory<Stream>& memory, const char* kind, const char* name, int64_t count,
                bool sent);
    std::vector<const Bucket*> buckets_of(int block) const;
    void send_complete_buckets(int64_t first);
    void send_bucket(const Bucket& bucket);
    void send_bucket_16(const Bucket& bucket);
    void send_block(int block);
    void send_block_bucket(const Bucket& bucket, float* grads);
    void wire_scale(const float* x, size_t n);
    void wire_reduce_scatter(const float* all, const Bucket& bucket, float* sum, bool from_zero);
    void gather_block(int block);
    void prefetch_after(int block);
    void params_from_masters(int64_t updates);
    RoundingKey rounding(const ParamTensor& tensor, int64_t first) const;
    std::vector<TensorSlice> slices(float* base, bool sliced, Pieces which);
    float* grad_chunk(int64_t offset, int64_t n);
    // In blocks of gradients or gathered parameters: 0 the embedding, 1 and 2
    // layers by turns, 3 the head. One place for all layers where nothing is sent
    // behind backward.
    int place(int block) const {
        return block == 0 ? 0 : block == layout_.head() ? 3 : grads_sliced() ? 1 + block % 2 : 1;
    }

    ParamLayout layout_;
    ShardsConfig config_;
    float limit_;  // of a micro-batch's gradient in fixed point
    Comm& dp_;
    Stream stream_;
    Slicing slicing_;
    std::vector<Range> held_, owned_;  // what this rank updates; its share of the whole

    Elem* params_;              // (whole or slices)  what the layers read
    float* masters_ = nullptr;  // (whole or slices)  what the optimizer updates; params_ in fp32
    float *m_ = nullptr, *v_ = nullptr;  // (whole or slices)
    float *host_masters_ = nullptr, *host_m_ = nullptr,
          *host_v_ = nullptr;              // the same on the host
    float* grads_ = nullptr;               // (whole or slices)  fp32 sums
    int64_t* sums_ = nullptr;              // (whole or slices)  fixed-point sums
    std::array<float*, 4> grad_places_{};  // one micro-batch's gradient of the blocks there; unused
                                           // where layers add to grads_ itself
    std::array<int64_t, 4> grad_tickets_{};  // of the communication that still reads them
    int64_t micro_batch_ = 0;                // of this rank in this step
    size_t next_bucket_ = 0;                 // to be sent in this step

    struct Gathered {
        Elem* data = nullptr;
        int block = -1;  // whose parameters are there, or are coming
        int users = 0;
        int64_t ticket = 0;
    };
    std::array<Gathered, 4> gathered_{};
    int acquired_[2] = {-1, -1};                   // the last two
    std::map<std::pair<int, int>, int> followed_;  // what came after which two, last time

    float* chunk_ = nullptr;          // sums_ as floats, a piece at a time
    int* bad_ = nullptr;              // (1)  an addend did not fit the fixed-point range
    FixedSum* square_sum_ = nullptr;  // (1)
    float *norm_ = nullptr, *grad_scale_ = nullptr;  // (1)
    void* room_ = nullptr;                           // (others' slices)  received on a GPU
    uint16_t* wire_ = nullptr;                       // (largest bucket)  as it is sent in 16 bits
    int32_t* most_ = nullptr;                        // (1)  of what is sent: decides its scale
    std::vector<std::shared_ptr<void>> registered_;  // memory, with dp_
    Queue queue_;                                    // last: its thread uses the others
};
