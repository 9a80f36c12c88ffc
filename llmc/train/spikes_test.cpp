#include "llmc/train/spikes.h"

#include <gtest/gtest.h>

#include <cmath>

TEST(spikes, a_normal_value_is_no_spike_and_an_outlier_is) {
    SpikeDetector d;
    for (int i = 0; i < 100; i++) d.accept(3.f + 0.01f * float(i % 10));
    EXPECT_LT(std::abs(d.z_score(3.05f)), 1.5);
    EXPECT_GT(d.z_score(4.f), 10);
    EXPECT_LT(d.z_score(2.f), -10);  // falling far is an outlier too, but downwards
}

TEST(spikes, non_finite_values_are_infinite_spikes_at_any_time) {
    SpikeDetector d;
    EXPECT_TRUE(std::isinf(d.z_score(NAN)));
    EXPECT_TRUE(std::isinf(d.z_score(-INFINITY)));
}

TEST(spikes, no_verdict_while_warming_up) {
    SpikeDetector d;
    for (int i = 0; i < SpikeDetector::kWarmUp - 1; i++) d.accept(1.f + 0.1f * float(i));
    EXPECT_EQ(d.z_score(1e6f), 0);
    d.accept(1.f);
    EXPECT_GT(d.z_score(1e6f), 100);
}

TEST(spikes, the_window_is_the_whole_state) {
    SpikeDetector a, b;
    for (int i = 0; i < 300; i++) a.accept(float(i * 7 % 31));
    EXPECT_EQ(int(a.window().size()), SpikeDetector::kWindow);
    b.restore(a.window());
    EXPECT_EQ(a.z_score(100.f), b.z_score(100.f));
    EXPECT_EQ(a.z_score(5.f), b.z_score(5.f));
}
