#include "llmc/train/batch.h"

#include <algorithm>

#include "llmc/ops/classifier.h"
#include "llmc/parallel/slicing.h"

Batch batch_read(const TokenFiles& data, uint64_t seed, int64_t first, int micro_batches, int B,
                 int T, int rank, int ranks) {
    const SampleOrder order{seed, data.samples(T)};
    const int64_t begin = int64_t(micro_batches) * rank / ranks;
    const int64_t end = int64_t(micro_batches) * (rank + 1) / ranks;
    Batch batch;
    batch.micro_batches = int(micro_batches_each(micro_batches, ranks));
    batch.tokens.resize(size_t(batch.micro_batches) * size_t(B) * size_t(T));
    batch.targets.resize(batch.tokens.size(), kIgnoreTarget);
    for (int64_t i = begin * B; i < end * B; i++) {
        const size_t at = size_t(i - begin * B) * T;
        data.read_sample(order.sample(first + i), T, batch.tokens.data() + at,
                         batch.targets.data() + at);
    }
    batch.valid = int64_t(batch.targets.size()) -
                  std::count(batch.targets.begin(), batch.targets.end(), kIgnoreTarget);
    return batch;
}
