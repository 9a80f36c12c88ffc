// The plan is what a run allocates, to the byte.
#include "llmc/train/planner.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "llmc/model/decode.h"
#include "llmc/model/gpt.h"
#include "llmc/train/run.h"
#include "llmc/train/saver.h"
#include "llmc/train/saves.h"

TEST(planner, the_plan_equals_what_a_run_allocates) {
    World world = world_init(60);
    const ModelConfig cfg = model_config("gpt2:d2", 300);
    for (int accumulate : {1, 3})
        for (Recompute recompute : {Recompute::None, Recompute::Selective, Recompute::Block})
            for (Reduction reduction : {Reduction::Canonical, Reduction::Fast})
                for (int sample_every : {0, 10}) {
                    Options opt;
                    opt.micro_batch = 2, opt.seq_len = 33, opt.recompute = recompute;
                    opt.batch_tokens = int64_t(accumulate) * 2 * 33, opt.reduction = reduction;
                    opt.sample_every = sample_every, opt.prompt = "abc";
                    options_derive(opt, cfg.max_T, 1);
                    const MemoryPlan plan = plan_memory(opt, cfg);

                    const size_t before = memory_in_use(CpuStream{});
                    Memory<CpuStream> memory{CpuStream{}};
                    Shards<float, CpuStream> shards(param_layout(cfg), shards_config(opt),
                                                    *world.dp, memory);
                    gpt_create<float>(cfg, opt.micro_batch, opt.seq_len, opt.recompute, false,
                                      memory);
                    const SamplingRoom room = sampling_room(opt, cfg);
                    if (room.capacity)
                        Decoder<float, CpuStream>(cfg, room.capacity, room.batch, memory);
                    EXPECT_EQ(int64_t(memory_in_use(CpuStream{}) - before), plan.total());
                    ASSERT_EQ(memory.plan().rows.size(), plan.rows.size());
                    for (size_t i = 0; i < plan.rows.size(); i++)
                        EXPECT_EQ(memory.plan().rows[i].bytes, plan.rows[i].bytes);
                }
}

TEST(planner, the_snapshot_of_an_asynchronous_save_is_in_the_plan) {
    // The vocabulary is padded to 384, and padding is not saved: shares differ.
    const ModelConfig cfg = model_config("gpt2:d2", 300);
    for (int ranks : {1, 2, 3, 8})
        for (int zero : {0, 1, 2, 3}) {
            Options opt;
            opt.micro_batch = 1, opt.seq_len = 33, opt.zero = zero;
            options_derive(opt, cfg.max_T, ranks);
            const MemoryPlan without = plan_memory(opt, cfg);
            opt.async_save = AsyncSaves::On;
            const int64_t snapshot = plan_memory(opt, cfg).total() - without.total();
            // Weights, m and v: the share of every rank fits, and that of one fills it.
            int64_t most = 0, all = 0;
            for (const auto& pieces :
                 planned_pieces(param_layout(cfg), shards_config(opt), ranks)) {
                int64_t bytes = 0;
                for (const TensorPiece& p : pieces) bytes += 4 * p.count;
                most = std::max(most, bytes), all += bytes;
            }
            EXPECT_EQ(snapshot, most) << ranks << " ranks, stage " << zero;
            EXPECT_EQ(all, 12 * param_layout(cfg).count);

            const size_t before = memory_in_use(CpuStream{});
            Memory<CpuStream> memory{CpuStream{}};
            snapshot_create(opt, cfg, memory);
            EXPECT_EQ(int64_t(memory_in_use(CpuStream{}) - before), snapshot);
        }
}

TEST(planner, measuring_allocates_nothing) {
    World world = world_init(60);
    Options opt;
    const ModelConfig cfg = model_config("gpt2:1558M");
    options_derive(opt, cfg.max_T, 1);
    const size_t before = memory_in_use(CpuStream{});
    const MemoryPlan plan = plan_memory(opt, cfg);
    EXPECT_EQ(memory_in_use(CpuStream{}), before);
    // Weights, gradients and two moments in fp32: 16 bytes a parameter and a little padding.
    const int64_t states =
        plan.total("parameters") + plan.total("gradients") + plan.total("optimizer");
    EXPECT_NEAR(double(states), 16.0 * 1557611200, 16.0 * 1557611200 * 1e-3);
    EXPECT_GT(plan.total("activations"), 0);
}

TEST(planner, bytes_are_written_for_people) {
    EXPECT_EQ(bytes_text(512), "512 B");
    EXPECT_EQ(bytes_text(1536), "1.50 KiB");
    EXPECT_EQ(bytes_text(int64_t(3) << 30), "3.00 GiB");
}
