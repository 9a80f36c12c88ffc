// llmc/train/schedule_test.cpp: every schedule at its corners.
#include "llmc/train/schedule.h"

#include <gtest/gtest.h>

namespace {
Options run(Schedule schedule, int steps, int warmup, double floor) {
    Options opt;
    opt.lr = 0.5;  // a power of two: the products below are exact
    opt.steps = steps, opt.warmup_steps = warmup;
    opt.schedule = schedule, opt.min_lr_frac = floor;
    return opt;
}
constexpr Schedule kAll[] = {Schedule::Cosine, Schedule::Linear, Schedule::Constant, Schedule::Wsd};
}  // namespace

TEST(schedule, warm_up_rises_linearly_to_the_peak) {
    for (Schedule s : kAll) {
        const Options opt = run(s, 100, 8, 0.25);
        EXPECT_EQ(learning_rate(opt, 0), 0.5f * 1 / 8);
        EXPECT_EQ(learning_rate(opt, 3), 0.5f * 4 / 8);
        EXPECT_EQ(learning_rate(opt, 7), 0.5f);
        EXPECT_EQ(learning_rate(opt, 8), 0.5f) << "the first step after the warm-up";
    }
}

TEST(schedule, no_warm_up_starts_at_the_peak) {
    for (Schedule s : kAll) EXPECT_EQ(learning_rate(run(s, 10, 0, 0), 0), 0.5f);
}

TEST(schedule, fall) {
    // 104 steps, 4 of warm-up: t = 1/2 at step 54; the last step is 1/100 short of the floor.
    EXPECT_NEAR(learning_rate(run(Schedule::Cosine, 104, 4, 0.2), 54), 0.5 * 0.6, 1e-7);
    EXPECT_NEAR(learning_rate(run(Schedule::Cosine, 104, 4, 0), 29), 0.5 * 0.8535534, 1e-7);
    EXPECT_NEAR(learning_rate(run(Schedule::Cosine, 104, 4, 0), 103), 0.5 * 2.467198e-4, 1e-8);
    EXPECT_NEAR(learning_rate(run(Schedule::Linear, 104, 4, 0.2), 54), 0.5 * 0.6, 1e-7);
    EXPECT_NEAR(learning_rate(run(Schedule::Linear, 104, 4, 0), 103), 0.5 * 0.01, 1e-8);
    EXPECT_EQ(learning_rate(run(Schedule::Constant, 104, 4, 0.2), 103), 0.5f);
}

TEST(schedule, wsd_is_flat_until_the_last_fifth) {
    const Options opt = run(Schedule::Wsd, 100, 10, 0.2);  // D = 80
    EXPECT_EQ(learning_rate(opt, 79), 0.5f);
    EXPECT_EQ(learning_rate(opt, 80), 0.5f);
    EXPECT_NEAR(learning_rate(opt, 85), 0.5 * (0.2 + 0.8 * 0.5), 1e-7);  // u = 1/4
    EXPECT_NEAR(learning_rate(opt, 99), 0.5 * (0.2 + 0.8 * (1 - 0.9746794)), 1e-7);
    // A warm-up that reaches into the last fifth pushes the fall back.
    EXPECT_EQ(learning_rate(run(Schedule::Wsd, 100, 95, 0), 95), 0.5f);
}

TEST(schedule, a_run_that_is_all_warm_up_is_finite) {
    for (Schedule s : kAll)
        for (int steps : {1, 2, 3}) {
            const Options opt = run(s, steps, steps, 0);
            EXPECT_EQ(learning_rate(opt, steps - 1), 0.5f);
        }
}
