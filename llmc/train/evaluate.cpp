#include "llmc/train/evaluate.h"

#include <algorithm>

#include "llmc/ops/classifier.h"

template <class Elem, class Stream>
Evaluation evaluate(Gpt<Elem, Stream>& gpt, Shards<Elem, Stream>& shards, const TokenFiles& data,
                    int64_t samples, Comm& comm,
                    const std::function<void(int64_t, int64_t)>& progress) {
    const int B = gpt.acts.B, T = gpt.acts.T;
    const int64_t all = data.samples(T), n = samples > 0 ? std::min(samples, all) : all;
    std::vector<int> tokens(size_t(B) * T), targets(size_t(B) * T);
    int64_t valid = 0;
    gpt_loss_reset(gpt);
    for (int64_t first = 0; first < n; first += int64_t(B) * comm.size()) {
        const int64_t mine = first + int64_t(B) * comm.rank();
        std::fill(tokens.begin(), tokens.end(), 0);
        std::fill(targets.begin(), targets.end(), kIgnoreTarget);
        for (int b = 0; b < B && mine + b < n; b++)
            data.read_sample(mine + b, T, tokens.data() + size_t(b) * T,
                             targets.data() + size_t(b) * T);
        gpt_forward_loss(gpt, shards, tokens.data(), targets.data());
        valid +=
            int64_t(targets.size()) - std::count(targets.begin(), targets.end(), kIgnoreTarget);
        if (progress) progress(std::min(first + int64_t(B) * comm.size(), n), n);
    }
    // No gradients: this waits for layers that were fetched ahead, over the same communicator.
    shards.reduce();
    FixedSum loss = gpt_loss_sum(gpt);
    fixed_sum_all_reduce(&loss, comm);
    comm.all_reduce(&valid, 1, ReduceOp::Sum, "targets of an evaluation");
    return {fixed_sum_value(loss) / double(std::max<int64_t>(valid, 1)), valid};
}

#define EVALUATE_FOR(Elem, Stream)                                                             \
    template Evaluation evaluate(Gpt<Elem, Stream>&, Shards<Elem, Stream>&, const TokenFiles&, \
                                 int64_t, Comm&, const std::function<void(int64_t, int64_t)>&);
EVALUATE_FOR(float, CpuStream)
FOR_CUDA(EVALUATE_FOR(float, CudaStream) EVALUATE_FOR(bf16, CudaStream))
