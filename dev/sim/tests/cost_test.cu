// The cost model as a test: every row of make sim-report reaches its goals.
#include <gtest/gtest.h>

#include <cstdlib>

#include "dev/sim/report/cost_model.h"

TEST(sim_cost, ops_reach_their_goals) {
    if (!cusim::counters_available()) GTEST_SKIP() << "counts exist in SIM_MODE=trace only";
    int measured = 0;
    for (const Cost& c : measure_costs("", std::getenv("TEST_DEEP") ? 768 : 128)) {
        SCOPED_TRACE(c.op + " " + c.type);
        measured++;
        EXPECT_GT(c.counted.launches, 0u);
        EXPECT_LE(c.moved_over_least(), c.goal.moved_over_least);
        EXPECT_GE(c.moved_over_least(), 0.999) << "the least is not the least";
        EXPECT_GE(c.counted.sector_efficiency(), c.goal.sector_efficiency);
        EXPECT_LE(c.counted.conflicts_per_access(), c.goal.conflicts_per_access);
    }
    EXPECT_GT(measured, 25);
}
