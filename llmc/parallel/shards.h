// llmc/parallel/shards.h: who holds which slice of parameters, gradients and optimizer state, and
// when the slices meet.
//
// The training loop sees four calls: reduce, norm, step, gather. The layer loop sees two pairs:
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
#pragma once
#include <memory>
#include <vector>

#include "llmc/core/layout.h"
#include "llmc/core/memory.h"
#include "llmc/ops/adamw.h"
#include "llmc/ops/reduce_sums.h"
#include "llmc/parallel/comm.h"

enum class Reduction { Canonical, Fast };

struct ShardsConfig {
    int zero = 0;
    Reduction reduction = Reduction::Canonical;
    int64_t micro_batches = 1;  // of one optimizer step, over all ranks
    bool inference = false;  // parameters alone: no gradients, no optimizer state
};

// Elements first .. first+count of the tensor lie at `data` on this rank.
struct TensorSlice {
    const ParamTensor* tensor;
    int64_t first, count;
    float* data;
};

// total = sum over ranks: limbs are integers, so any collective adds them exactly.
void fixed_sum_all_reduce(FixedSum& total, Comm& comm);

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

    // ---- once a step, in this order
    // The owner of each slice gets its sum over all ranks and micro-batches.
    void reduce();
    // The 2-norm of the whole gradient: exact sums of squares of chunks, so the same bits on every
    // rank and layout; NaN when an element is not finite or out of the fixed-point range.
    float norm();
    // One AdamW step on this rank's slices with the gradient times grad_scale; matrices decay.
    // grad_scale == 0 skips the update. The gradients are zero afterwards.
    void step(AdamW hyper, float grad_scale);
    // Every rank gets the parameters that it will need.
    void gather();

    // ---- the state as named pieces, for initialisation and checkpoints
    std::vector<TensorSlice> master_slices();    // fp32 parameters that the optimizer updates
    std::vector<TensorSlice> moment_m_slices();
    std::vector<TensorSlice> moment_v_slices();

    const ParamLayout& layout() const { return layout_; }

  private:
    bool fixed_point() const;
    std::vector<TensorSlice> slices(float* base);
    float* grad_chunk(const ParamBlock& block, int64_t offset, int64_t n);
    template <class Visit>
    void for_each_chunk(Visit visit);

    ParamLayout layout_;
    ShardsConfig config_;
    Comm& dp_;
    Stream stream_;
    Elem* params_;        // (layout.size)
    float *m_, *v_;       // (layout.size)
    float* grads_;        // (layout.size), or in fixed point: one micro-batch of the embedding, of
                          // one layer and of the head
    std::vector<float*> grad_blocks_;  // where block b's gradient is written
    int64_t* sums_ = nullptr;          // (layout.size)  fixed point over micro-batches
    float* chunk_ = nullptr;           // (kChunk)       sums_ as floats, a piece at a time
    int* bad_;                         // (1)            an addend did not fit the fixed-point range
    FixedSum* square_sum_;             // (1)
    float* grad_scale_;                // (1)
};
