// The watchdog keeps quiet while there is progress of whatever kind, speaks once when there is
// none, and names the collective. Its thread looks at what others write: the thread sanitizer
// watches (scripts/test/threads_test.sh). Killed and stopped processes:
// scripts/test/mpi_fault_test.sh.
#include "llmc/parallel/watchdog.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "llmc/core/check.h"
#include "llmc/parallel/comm_behind.h"
#include "llmc/parallel/comm_testing.h"
#include "llmc/parallel/liveness.h"

namespace {

// A world of one process with the words that ranks of a host share.
struct TestWorld {
    alignas(64) char memory[4096] = {};
    World world;
    TestWorld() {
        world.status = reinterpret_cast<SharedStatus*>(memory);
        world.status->ranks[0].pid = int(::getpid());
        world.dp = comm_self(), world.background = comm_self();
    }
};

void nap(int ms) {
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

// In a process of its own: what ends it.
class watchdog_dies : public testing::Test {
  protected:
    void SetUp() override { testing::FLAGS_gtest_death_test_style = "threadsafe"; }
};

}  // namespace

TEST(watchdog, micro_batches_collectives_and_phases_are_progress) {
    TestWorld t;
    Watchdog watchdog(t.world, {30, 1.5, 30});
    watchdog.phase(RunPhase::Step, 1);
    for (int i = 0; i < 2; i++) {
        nap(800);
        liveness_mark();
        nap(800);
        t.world.dp->barrier("progress");
        nap(800);
        watchdog.phase(RunPhase::Step, 2 + i);
    }
    EXPECT_EQ(t.world.status->failure, 0);
    EXPECT_EQ(t.world.status->ranks[0].phase, int(RunPhase::Step));
    EXPECT_GT(t.world.status->ranks[0].beat, 0);
}

// The run waits for a save that goes on behind it: that is progress in the phase of saving alone.
TEST(watchdog, the_save_behind_the_run_is_progress_for_who_waits_for_it) {
    TestWorld t;
    Watchdog watchdog(t.world, {30, 30, 1.5});
    watchdog.phase(RunPhase::Save, 1);
    std::thread save([&] {
        comm_record_behind();
        for (int i = 0; i < 4; i++) {
            nap(700);
            t.world.background->barrier("part of a save");
        }
    });
    save.join();
    EXPECT_EQ(t.world.status->failure, 0);
}

TEST_F(watchdog_dies, of_a_step_without_progress_though_a_save_goes_on) {
    const auto stuck = [] {
        TestWorld t;
        Watchdog watchdog(t.world, {30, 0.5, 30});
        t.world.dp->barrier("the last one");
        watchdog.phase(RunPhase::Step, 17);
        comm_record_behind();
        for (;;) {
            nap(50);
            t.world.background->barrier("part of a save");
        }
    };
    EXPECT_EXIT(stuck(), testing::ExitedWithCode(int(Exit::Hang)),
                "no progress for .* in step 17; last collective .*the last one.*--step-limit");
}

TEST_F(watchdog_dies, of_a_save_that_hangs_naming_its_collective) {
    const auto stuck = [] {
        TestWorld t;
        comm_record_behind();
        t.world.background->barrier("part of a save");
        Watchdog watchdog(t.world, {30, 30, 0.5});
        watchdog.phase(RunPhase::Save, 17);
        for (;;) nap(50);
    };
    EXPECT_EXIT(stuck(), testing::ExitedWithCode(int(Exit::Hang)),
                "in the save of step 17.*of the save behind the run .*part of a save");
}

// A sample is no validation, and a world of one has nobody who could be behind.
TEST_F(watchdog_dies, of_a_sample_that_hangs_in_a_world_of_one) {
    const auto stuck = [] {
        TestWorld t;
        t.world.status = nullptr;
        Watchdog watchdog(t.world, {30, 0.5, 30});
        watchdog.phase(RunPhase::Sample, 17);
        for (;;) nap(50);
    };
    EXPECT_EXIT(stuck(), testing::ExitedWithCode(int(Exit::Hang)),
                "in the sample of step 17; last .*expected some every 0.5 s; hint: .*--step-limit");
}

// Files that a save behind the run writes are no progress of the step, and layers are.
TEST_F(watchdog_dies, of_a_step_that_hangs_while_a_save_writes_on) {
    const auto stuck = [] {
        TestWorld t;
        Watchdog watchdog(t.world, {30, 0.5, 30});
        watchdog.phase(RunPhase::Step, 17);
        comm_record_behind();
        for (;;) nap(50), liveness_mark();
    };
    EXPECT_EXIT(stuck(), testing::ExitedWithCode(int(Exit::Hang)), "in step 17");
}

// What is left to say is said, and waited for no longer than others wait for this rank.
TEST_F(watchdog_dies, after_its_last_words) {
    const auto stuck = [](bool for_ever) {
        TestWorld t;
        Watchdog watchdog(t.world, {30, 0.5, 30});
        watchdog.last_words([=] {
            std::fprintf(stderr, "last words\n");
            while (for_ever) nap(50);
        });
        watchdog.phase(RunPhase::Step, 17);
        for (;;) nap(50);
    };
    EXPECT_EXIT(stuck(false), testing::ExitedWithCode(int(Exit::Hang)), "last words");
    EXPECT_EXIT(stuck(true), testing::ExitedWithCode(int(Exit::Hang)), "last words");
}

// Another rank has failed while this one computes on.
TEST_F(watchdog_dies, with_the_code_of_a_rank_that_has_failed) {
    const auto computing = [] {
        TestWorld t;
        Watchdog watchdog(t.world, {});
        t.world.status->failure = failure_word(int(Exit::Damaged), 3);
        for (;;) nap(50);
    };
    EXPECT_EXIT(computing(), testing::ExitedWithCode(int(Exit::Damaged)), "");
}
