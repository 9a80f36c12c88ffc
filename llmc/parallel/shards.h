// llmc/parallel/shards.h: who holds which slice of parameters, gradients and optimizer state, and
// when the slices meet.
//
// The training loop sees four calls: reduce, clip, step, gather. The layer loop sees two pairs:
// params_acquire / params_release around the use of a block's parameters, and grads_acquire /
// grads_release around the writing of its gradients.
//
// ZeRO (Rajbhandari et al. 2020, arXiv:1910.02054) says what is sliced over the dp ranks: nothing
// (0), the optimizer state (1), also the gradients (2), also the parameters (3). Every block is cut
// into equal slices at multiples of kTensorAlign; rank r owns slice r.
//
// Reduction::Canonical gives the same bits for every number of ranks and every order of
// micro-batches: each micro-batch's gradient becomes fixed point and is added as integers
// (llmc/ops/reduce_sums.h). A step of a single micro-batch has nothing to add and stays in fp32.
// Reduction::Fast adds in fp32, in whatever order.
//
// On CUDA a model in bf16 has its parameters twice: fp32 masters, which the optimizer updates, and
// their rounded copy, which the layers read. Gradients are fp32 everywhere.
#pragma once
#include <memory>
#include <type_traits>
#include <vector>

#include "llmc/core/layout.h"
#include "llmc/core/memory.h"
#include "llmc/ops/adamw.h"
#include "llmc/ops/clip.h"
#include "llmc/ops/reduce_sums.h"
#include "llmc/parallel/comm.h"

enum class Reduction { Canonical, Fast };

struct ShardsConfig {
    int zero = 0;
    Reduction reduction = Reduction::Canonical;
    int64_t micro_batches = 1;  // of one optimizer step, over all ranks
    bool inference = false;  // parameters alone: no gradients, no optimizer state
    // How a bf16 copy is rounded: to nearest, or up or down by chance, so that the mean is right;
    // the chance is a function of (seed, tensor, element, update).
    bool stochastic_rounding = false;
    uint64_t seed = 0;
};

// Elements first .. first+count of the tensor lie at `data` in this rank's host memory.
struct TensorSlice {
    const ParamTensor* tensor;
    int64_t first, count;
    float* data;
};

// total = sum over ranks: limbs are integers, so any collective adds them exactly. total lies in the
// memory that comm works on.
void fixed_sum_all_reduce(FixedSum* total, Comm& comm);

template <class Elem, class Stream>
class Shards {
  public:
    Shards(const ParamLayout& layout, const ShardsConfig& config, Comm& dp, Memory<Stream>& memory);
    Shards(const Shards&) = delete;
    Shards& operator=(const Shards&) = delete;

    // ---- around the use of a block's parameters; the pointer is valid until the release
    Elem* params_acquire(int block);
    void params_release(int block);

    // ---- around the writing of a block's gradients, which are always +=
    // A block may be acquired more than once in a micro-batch (a tied head writes into the
    // embedding's gradient); it is released once, when all its gradients are in.
    float* grads_acquire(int block);
    void grads_release(int block);

    // ---- once a step, in this order; on CUDA all of it is queued, only norm() waits
    // The owner of each slice gets its sum over all ranks and micro-batches.
    void reduce();
    // The 2-norm of the whole gradient, from exact sums of squares of chunks: the same bits on every
    // rank and layout. The update will take the gradient times min(1, most / norm), or be skipped
    // where the norm or the loss is not finite (llmc/ops/clip.h). The loss, of this rank's
    // micro-batches on entry, is that of all ranks on return.
    void clip(double most, FixedSum* loss);
    // The coming update is skipped in any case.
    void skip();
    // One AdamW step on this rank's slices; matrices decay. The gradients are zero afterwards.
    void step(AdamW hyper);
    // Every rank gets the parameters that it will need.
    void gather();
    // What the last clip() found: NaN when an element is not finite or out of the fixed-point range.
    float norm();

    // ---- the state as named pieces of host memory, for initialisation and checkpoints
    // On the CPU the pieces are the state itself, and the two copies do nothing. On CUDA they are a
    // copy: state_to_host() comes before reading them, state_from_host() after writing, with the
    // number of updates behind the state (it decides the rounding of bf16 parameters).
    std::vector<TensorSlice> master_slices();    // fp32 parameters that the optimizer updates
    std::vector<TensorSlice> moment_m_slices();
    std::vector<TensorSlice> moment_v_slices();
    void state_to_host();
    void state_from_host(int64_t updates);

    const ParamLayout& layout() const { return layout_; }

  private:
    static constexpr bool kStateOnHost = std::is_same_v<Stream, CpuStream>;
    static constexpr bool kHasMasters = !std::is_same_v<Elem, float>;

    bool fixed_point() const;
    void state_create(Memory<Stream>& memory);
    void gradients_create(Memory<Stream>& memory);
    void params_from_masters(int64_t updates);
    RoundingKey rounding(const ParamTensor& tensor, int64_t first) const;
    std::vector<TensorSlice> slices(float* base);
    float* grad_chunk(int64_t offset, int64_t n);

    ParamLayout layout_;
    ShardsConfig config_;
    Comm& dp_;
    Stream stream_;
    Elem* params_;                // (layout.size)  what the layers read
    float* masters_ = nullptr;    // (layout.size)  what the optimizer updates; params_ itself in fp32
    float *m_ = nullptr, *v_ = nullptr;  // (layout.size)
    float *host_masters_ = nullptr, *host_m_ = nullptr, *host_v_ = nullptr;  // the same on the host
    float* grads_ = nullptr;      // (layout.size), or in fixed point: one micro-batch of the
                                  // embedding, of one layer and of the head
    std::vector<float*> grad_blocks_;  // where block b's gradient is written
    int64_t* sums_ = nullptr;          // (layout.size)  fixed point over micro-batches
    float* chunk_ = nullptr;           // sums_ as floats, a piece at a time
    int* bad_ = nullptr;               // (1)  an addend did not fit the fixed-point range
    FixedSum* square_sum_ = nullptr;   // (1)
    float *norm_ = nullptr, *grad_scale_ = nullptr;  // (1)
};
