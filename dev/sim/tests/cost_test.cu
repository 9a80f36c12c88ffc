// The cost model as a test: no memory-bound kernel moves more than it must, none wastes sectors.
#include <gtest/gtest.h>

#include "dev/sim/report/cost_model.h"

TEST(sim_cost, memory_bound_ops_move_what_they_must) {
    if (!cusim::counters_available()) GTEST_SKIP() << "counts exist in SIM_MODE=trace only";
    int measured = 0;
    for (const Cost& c : measure_costs("")) {
        SCOPED_TRACE(c.op + " " + c.type);
        measured++;
        EXPECT_GT(c.counted.launches, 0u);
        if (!c.memory_bound) continue;
        EXPECT_LE(c.moved_over_least(), kMostMovedOverLeast);
        EXPECT_GE(c.moved_over_least(), 0.99) << "the least is not the least";
        EXPECT_GE(c.counted.sector_efficiency(), kLeastSectorEfficiency);
    }
    EXPECT_GT(measured, 20);
}
