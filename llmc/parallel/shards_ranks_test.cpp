// Shards on any number of ranks, also where nothing divides and slices are empty: the state of one
// rank, and every element of every tensor has moved. Ranks are threads here, so that the thread
// sanitizer sees communication behind backward (scripts/test/threads_test.sh).
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>

#include "llmc/core/rng.h"
#include "llmc/parallel/comm_testing.h"
#include "llmc/parallel/shards.h"

namespace {

// Prime sizes, a tensor of one element, blocks smaller than kTensorAlign times the ranks.
ParamLayout prime_layout() {
    ParamLayout layout;
    int tensors = 0;
    for (const std::vector<int64_t>& sizes :
         {std::vector<int64_t>{37 * 5, 7}, {331, 1}, {5, 129}, {61}}) {
        ParamBlock b{"block", {}, layout.size, 0};
        for (int64_t n : sizes) {
            const std::string name = "t" + std::to_string(tensors++);
            b.tensors.push_back({name, {n}, n, b.size, b.tensors.empty(), 0, 1});
            b.size += (n + kTensorAlign - 1) / kTensorAlign * kTensorAlign;
            layout.count += n;
        }
        layout.size += b.size;
        layout.blocks.push_back(b);
    }
    return layout;
}

// The whole state, put together from what each rank owns: group and tensor to values.
using State = std::map<std::string, std::vector<float>>;

struct Case {
    int ranks, zero, micro_batches;
    bool overlap = true;
    double bucket = 1024;
    int steps = 3;
    std::string text() const {
        return "ranks " + std::to_string(ranks) + ", zero " + std::to_string(zero) + ", overlap " +
               std::to_string(overlap) + ", bucket " + std::to_string(bucket);
    }
};

// Micro-batch i of a step writes the same gradient on whatever rank it is computed. The layers are
// used as a model would use them: acquired forward, then backward.
void micro_batch(Shards<float, CpuStream>& shards, int step, int i) {
    const ParamLayout& layout = shards.layout();
    const auto use = [&](int b) {
        const float* p = shards.params_acquire(b);
        EXPECT_TRUE(std::isfinite(p[0]));
        return p;
    };
    for (int b = 0; b <= layout.head(); b++) {
        use(b);
        shards.params_release(b);
    }
    for (int b = layout.head(); b >= 0; b--) {
        const float* p = use(b);
        float* g = shards.grads_acquire(b);
        for (const ParamTensor& t : layout.blocks[b].tensors)
            for (int64_t j = 0; j < t.count(); j++)
                g[t.offset + j] +=
                    random_uniform(uint64_t(step * 1000 + i), name_hash(t.name), uint64_t(j)) -
                    0.25f + 0.01f * p[t.offset + j];
        shards.grads_release(b);
        shards.params_release(b);
    }
}

State run(const Case& c) {
    State state;
    std::mutex mutex;
    on_threads(c.ranks, [&](Comm& comm, Comm&) {
        ShardsConfig config;
        config.zero = c.zero, config.micro_batches = c.micro_batches, config.overlap = c.overlap;
        config.bucket_bytes = c.bucket;
        Memory<CpuStream> memory{CpuStream{}};
        Shards<float, CpuStream> shards(prime_layout(), config, comm, memory);
        auto* loss = memory.get<FixedSum>("test", "loss", 1);
        for (TensorSlice& s : shards.master_slices())
            random_normal(s.data, size_t(s.count), uint64_t(s.first), 0, 1, 1,
                          name_hash(s.tensor->name));
        shards.state_from_host(0);
        for (int step = 1; step <= c.steps; step++) {
            const int first = c.micro_batches * comm.rank() / c.ranks;
            const int last = c.micro_batches * (comm.rank() + 1) / c.ranks;
            for (int i = first; i < last; i++) micro_batch(shards, step, i);
            shards.reduce();
            shards.clip(0.5, loss);
            shards.step({0.01f, 0.9f, 0.95f, 1e-8f, 0.1f, step});
            shards.gather();
        }
        const std::lock_guard lock(mutex);
        for (auto [group, slices] : {std::pair("weights ", shards.master_slices(Pieces::Owned)),
                                     {"m ", shards.moment_m_slices(Pieces::Owned)},
                                     {"v ", shards.moment_v_slices(Pieces::Owned)}})
            for (const TensorSlice& s : slices) {
                std::vector<float>& all = state[group + s.tensor->name];
                all.resize(size_t(s.tensor->count()), std::nanf(""));
                for (int64_t i = 0; i < s.count; i++) {
                    EXPECT_TRUE(std::isnan(all[size_t(s.first + i)])) << "two owners";
                    all[size_t(s.first + i)] = s.data[i];
                }
            }
    });
    return state;
}

}  // namespace

TEST(shards_ranks, one_state_for_any_number_of_ranks) {
    for (int ranks : {1, 2, 3, 4, 5, 7, 8})
        for (int micro_batches : {ranks, 3 * ranks}) {
            const State one = run({1, 0, micro_batches});
            ASSERT_EQ(one.size(), 3u * 7);
            for (int zero : {0, 1, 2, 3}) {
                const Case c{ranks, zero, micro_batches, zero != 1,
                             ranks % 2 ? 1024. : 300. * (zero + 1)};
                EXPECT_EQ(run(c), one) << c.text();
            }
        }
}

TEST(shards_ranks, every_element_moves) {
    for (int ranks : {1, 3, 5, 7, 8})
        for (int zero : {0, 1, 2, 3}) {
            const Case now{ranks, zero, 2 * ranks};
            Case before = now;
            before.steps = 2;
            const State a = run(before), b = run(now);
            for (const auto& [name, values] : b)
                for (size_t i = 0; i < values.size(); i++)
                    ASSERT_NE(values[i], a.at(name)[i]) << now.text() << ", " << name << " " << i;
        }
}
