// A save behind the run is the same save: the same bytes, the same verdict on every rank, whatever
// the run does meanwhile. Ranks are threads here, so that the thread sanitizer sees everything
// (scripts/test/threads_test.sh).
#include "llmc/io/checkpoint_async.h"

#include <fstream>
#include <map>
#include <sstream>

#include "llmc/core/check.h"
#include "llmc/io/checkpoint_testing.h"
#include "llmc/parallel/comm_behind.h"

namespace fs = std::filesystem;

// Name and content of every file below a directory.
static std::map<std::string, std::string> files_below(const std::string& dir) {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(dir)) {
        if (!entry.is_regular_file()) continue;
        std::ostringstream text;
        text << std::ifstream(entry.path(), std::ios::binary).rdbuf();
        files[fs::relative(entry.path(), dir)] = text.str();
    }
    return files;
}

// What a run does while a save is under way: it communicates. Returns after how many rounds the
// save had ended everywhere.
static int64_t rounds_until_ended(AsyncSave& save, Comm& comm) {
    int64_t rounds = 0;
    for (; !save.ended_everywhere(comm); rounds++) {
        int64_t sum = comm.rank() + rounds;
        comm.all_reduce(&sum, 1);
        EXPECT_EQ(sum, comm.size() * (comm.size() - 1) / 2 + comm.size() * rounds);
    }
    return rounds;
}

TEST(checkpoint_async, the_same_bytes_as_a_save_at_once) {
    for (int ranks : {1, 3}) {
        ScratchDir at_once, behind;
        on_threads(ranks, [&](Comm& comm, Comm& background) {
            AsyncSave save(background);
            Saves mine, yours;
            for (int64_t step = 1; step <= 4; step++) {
                ToyState state(step);
                const auto pieces = state.pieces(comm.rank(), ranks);
                save.start(behind.path, toy_meta(step), pieces, mine);
                EXPECT_TRUE(save.under_way());
                // The other save goes on at the same time, in HDF5 too.
                const SaveResult b =
                    checkpoint_save(at_once.path, toy_meta(step), pieces, comm, yours);
                rounds_until_ended(save, comm);
                const SaveResult a = save.finish();
                EXPECT_FALSE(save.under_way());
                EXPECT_TRUE(a.ok && b.ok) << a.reason << b.reason;
                EXPECT_EQ(a.state, b.state);
                EXPECT_EQ(a.bytes, b.bytes);
                EXPECT_EQ(mine.verified, yours.verified);
                EXPECT_GT(save.seconds(), 0);
            }
        });
        const auto a = files_below(behind.path), b = files_below(at_once.path);
        EXPECT_EQ(a, b) << ranks << " ranks";
        EXPECT_EQ(a.size(), size_t(2 * (ranks + 2) + 1));  // two are kept, and `latest`
    }
}

TEST(checkpoint_async, a_failure_on_one_rank_is_known_to_all_at_the_same_place) {
    ScratchDir out;
    std::atomic<int64_t> rounds[3];
    on_threads(3, [&](Comm& comm, Comm& background) {
        AsyncSave save(background);
        Saves saves;
        ToyState state(1);
        auto pieces = state.pieces(comm.rank(), 3);
        if (comm.rank() == 1) pieces[0].name = "no/name";
        save.start(out.path, toy_meta(1), pieces, saves);
        rounds[comm.rank()] = rounds_until_ended(save, comm);
        SaveResult r = save.finish();
        EXPECT_FALSE(r.ok);
        EXPECT_NE(r.reason.find("rank 1: "), std::string::npos) << r.reason;
        EXPECT_NE(r.reason.find("no/name"), std::string::npos) << r.reason;
        EXPECT_TRUE(saves.verified.empty());
        // And the next one goes well.
        save.start(out.path, toy_meta(1), state.pieces(comm.rank(), 3), saves);
        r = save.finish();
        EXPECT_TRUE(r.ok) << r.reason;
    });
    EXPECT_EQ(rounds[0], rounds[1]);
    EXPECT_EQ(rounds[0], rounds[2]);
}

TEST(checkpoint_async, one_at_a_time) {
    ScratchDir out;
    auto comm = comm_self();
    AsyncSave save(*comm);
    Saves saves;
    ToyState state(1);
    save.start(out.path, toy_meta(1), state.pieces(), saves);
    EXPECT_THROW(save.start(out.path, toy_meta(2), state.pieces(), saves), Error);
    EXPECT_TRUE(save.finish().ok);
}

// Rank 1 never comes to the save: those who wait there get what those who wait in the run get.
TEST(checkpoint_async, a_rank_that_has_failed_ends_the_save_of_the_others) {
    ScratchDir out;
    std::atomic<int32_t> failure{0};
    on_threads(
        3,
        [&](Comm& comm, Comm& background) {
            if (comm.rank() == 1) {
                std::this_thread::sleep_for(std::chrono::milliseconds(100));
                failure = failure_word(int(Exit::Resource), 1);
                return;
            }
            AsyncSave save(background);
            Saves saves;
            ToyState state(1);
            save.start(out.path, toy_meta(1), state.pieces(comm.rank(), 3), saves);
            try {
                save.finish();
                ADD_FAILURE() << "a save without rank 1";
            } catch (const PeerFailed& e) {
                EXPECT_EQ(e.code, int(Exit::Resource));
                EXPECT_EQ(e.rank, 1);
            }
            EXPECT_FALSE(save.under_way());
        },
        &failure);
    EXPECT_FALSE(fs::exists(out.path + "/ckpt/step-0000000001"));
}

// The watchdog compares how far ranks are: what happens behind the run must not count.
TEST(checkpoint_async, its_collectives_are_counted_apart) {
    ScratchDir out;
    on_threads(1, [&](Comm& comm, Comm& background) {
        comm.barrier("before");
        const int64_t before = comm_last().seq, behind = comm_last_behind().seq;
        AsyncSave save(background);
        Saves saves;
        ToyState state(1);
        save.start(out.path, toy_meta(1), state.pieces(), saves);
        EXPECT_TRUE(save.finish().ok);
        EXPECT_EQ(comm_last().seq, before);
        EXPECT_GT(comm_last_behind().seq, behind + 5);
    });
}
