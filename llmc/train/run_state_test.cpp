#include "llmc/train/run_state.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "llmc/core/check.h"

TEST(run_state, a_non_finite_step_is_skipped_counted_and_leaves_the_statistics_alone) {
    Options opt;
    opt.max_skipped = 3;
    RunState s;
    for (int i = 0; i < 50; i++) EXPECT_TRUE(step_judge(s, opt, 3.f + 0.01f * (i % 5), 1.f).apply);
    const auto window = s.loss_spikes.window();
    Verdict v = step_judge(s, opt, NAN, 1.f);
    EXPECT_FALSE(v.apply);
    EXPECT_EQ(v.reason, "non-finite");
    check_skipped(s, opt, v);
    v = step_judge(s, opt, 3.f, INFINITY);
    check_skipped(s, opt, v);
    EXPECT_EQ(s.loss_spikes.window(), window);
    v = step_judge(s, opt, 3.f, NAN);
    EXPECT_THROW(check_skipped(s, opt, v), Error);
    EXPECT_EQ(s.step, 53);
    EXPECT_EQ(s.updates, 50);
    EXPECT_TRUE(step_judge(s, opt, 3.f, 1.f).apply);
    EXPECT_EQ(s.skipped_in_row, 0);
}

TEST(run_state, spikes_are_skipped_only_when_asked_for) {
    Options opt;
    RunState s;
    for (int i = 0; i < 50; i++) step_judge(s, opt, 3.f + 0.01f * (i % 5), 1.f + 0.01f * (i % 7));
    EXPECT_TRUE(step_judge(s, opt, 9.f, 1.f).apply);
    opt.loss_spike_z = 6;
    EXPECT_EQ(step_judge(s, opt, 9.f, 1.f).reason, "spike");
    opt.loss_spike_z = 0;
    opt.norm_spike_z = 6;
    EXPECT_EQ(step_judge(s, opt, 3.f, 30.f).reason, "spike");
    EXPECT_TRUE(step_judge(s, opt, 0.5f, 0.1f).apply);  // falling is no spike
}

TEST(run_state, json_brings_everything_back) {
    Options opt;
    RunState s;
    s.samples = 12345678901;
    for (int i = 0; i < 200; i++) step_judge(s, opt, 1.f / (3.f + i), i % 9 ? 0.1f * i : NAN);
    s.boundary_done = true;
    const auto text = run_state_to_json(s).dump();
    const RunState back = run_state_from_json(nlohmann::json::parse(text));
    EXPECT_EQ(run_state_to_json(back).dump(), text);
    EXPECT_EQ(back.loss_spikes.window(), s.loss_spikes.window());
    EXPECT_EQ(back.samples, s.samples);
}

TEST(run_state, damaged_json_is_refused) {
    const nlohmann::json good = run_state_to_json({});
    auto refused = [&](const char* key, nlohmann::json value) {
        nlohmann::json bad = good;
        bad[key] = std::move(value);
        try {
            run_state_from_json(bad);
        } catch (const Error& e) {
            return e.code == Exit::Damaged;
        }
        return false;
    };
    EXPECT_TRUE(refused("step", -1));
    EXPECT_TRUE(refused("step", 5));
    EXPECT_TRUE(refused("samples", "x"));
    EXPECT_TRUE(refused("samples", 2.5));
    EXPECT_TRUE(refused("samples", 1e300));
    EXPECT_TRUE(refused("samples", UINT64_MAX));
    EXPECT_TRUE(refused("loss_window", nlohmann::json::array({nullptr})));
    EXPECT_TRUE(refused("norm_window", std::vector<float>(129, 1.f)));
    nlohmann::json bad = good;
    bad.erase("updates");
    EXPECT_THROW(run_state_from_json(bad), Error);
}
