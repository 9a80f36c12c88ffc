#include "llmc/train/evaluate.h"

#include <algorithm>

#include "llmc/ops/classifier.h"

template <class Elem, class Stream>
Evaluation evaluate(Gpt<Elem, Stream>& gpt, Shards<Elem, Stream>& shards, const TokenFiles& data,
                    int64_t samples, void (*progress)(int64_t, int64_t)) {
    const int B = gpt.acts.B, T = gpt.acts.T;
    const int64_t all = data.samples(T), n = samples > 0 ? std::min(samples, all) : all;
    std::vector<int> tokens(size_t(B) * T), targets(size_t(B) * T);
    gpt_loss_reset(gpt);
    for (int64_t first = 0; first < n; first += B) {
        std::fill(tokens.begin(), tokens.end(), 0);
        std::fill(targets.begin(), targets.end(), kIgnoreTarget);
        for (int b = 0; b < B && first + b < n; b++)
            data.read_sample(first + b, T, tokens.data() + size_t(b) * T,
                             targets.data() + size_t(b) * T);
        gpt_forward_loss(gpt, shards, tokens.data(), targets.data());
        if (progress) progress(std::min(first + B, n), n);
    }
    const int64_t count = n * T;
    return {fixed_sum_value(gpt_loss_sum(gpt)) / double(std::max<int64_t>(count, 1)), count};
}

template Evaluation evaluate(Gpt<float, CpuStream>&, Shards<float, CpuStream>&, const TokenFiles&,
                             int64_t, void (*)(int64_t, int64_t));
FOR_CUDA(template Evaluation evaluate(Gpt<float, CudaStream>&, Shards<float, CudaStream>&,
                                      const TokenFiles&, int64_t, void (*)(int64_t, int64_t));
         template Evaluation evaluate(Gpt<bf16, CudaStream>&, Shards<bf16, CudaStream>&,
                                      const TokenFiles&, int64_t, void (*)(int64_t, int64_t));)
