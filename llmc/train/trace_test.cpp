// llmc/train/trace_test.cpp: one file of all ranks, whose parts pass through no other rank. What is
// in it: scripts/test/mpi_test.sh, nccl_test.sh.
#include "llmc/train/trace.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "llmc/parallel/comm_testing.h"
#include "llmc/parallel/timeline.h"

namespace {

// A watchdog of a process of its own.
struct Guard {
    alignas(64) char memory[4096] = {};
    World world;
    std::unique_ptr<Watchdog> watchdog;
    Guard() {
        world.status = reinterpret_cast<SharedStatus*>(memory);
        world.status->ranks[0].pid = int(::getpid());
        world.dp = comm_self(), world.background = comm_self();
        watchdog = std::make_unique<Watchdog>(world, WatchLimits{60, 60, 60});
    }
};

// Rank r has 700 (r + 1) spans, so that parts need several pieces and have unequal lengths.
bool trace_of(int ranks, const std::string& path) {
    return on_ranks(ranks, [&](Comm& comm) {
        Guard guard;
        Trace trace(path, comm, *guard.watchdog);
        for (int i = 0; i < 700 * (comm.rank() + 1); i++) timeline_add("span", "", -1, i, i + 1);
        const int64_t before = comm.bytes_sent();
        trace.write();
        const int64_t sent = comm.bytes_sent() - before;
        EXPECT_LT(sent, comm.rank() == 0 ? 1 : 700 * (comm.rank() + 1) * 150) << comm.rank();
    });
}

}  // namespace

TEST(trace, rank_0_writes_one_part_after_the_other) {
    const std::string path = testing::TempDir() + "trace_test.json";
    ASSERT_TRUE(trace_of(4, path));
    std::ifstream in(path);
    const auto trace = nlohmann::json::parse(in);
    int spans[4] = {}, rank = 0;
    for (const auto& event : trace["traceEvents"]) {
        if (event["ph"] != "X") continue;
        EXPECT_GE(int(event["pid"]), rank);
        rank = event["pid"];
        if (event["name"] == "span") spans[rank]++;
    }
    for (int r = 0; r < 4; r++) EXPECT_EQ(spans[r], 700 * (r + 1));
    std::filesystem::remove(path);
}

TEST(trace, a_full_disk_is_a_warning) {
    testing::internal::CaptureStderr();
    EXPECT_TRUE(trace_of(3, "/dev/full"));
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(said, "warning: the trace /dev/full could not be written\n");
}
