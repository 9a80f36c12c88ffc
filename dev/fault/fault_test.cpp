// dev/fault/fault_test.cpp: a save, a deletion, a start under every fault we can think of, and the
// proof that each step of the protocol is needed by one of these tests.
#include <gtest/gtest.h>
#include <omp.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>

#include "dev/fault/save_runs.h"
#include "llmc/core/check.h"
#include "llmc/io/checkpoint.h"
#include "llmc/io/checkpoint_names.h"
#include "llmc/io/checkpoint_testing.h"
#include "llmc/io/files.h"

namespace fs = std::filesystem;

// A watched directory with the run's OUT two levels below, so that making it is watched too.
static const std::string OUT = "runs/out";

namespace {
struct Place {
    ScratchDir scratch;
    std::string watch = scratch.path + "/watch", out = watch + "/" + OUT;
    std::string log = scratch.path + "/log";
    Place() { fs::create_directories(watch); }
    // The same content as another place has.
    void copy(const Place& from) {
        fs::remove_all(watch);
        fs::copy(from.watch, watch, fs::copy_options::recursive);
    }
    FaultPlan plan() const {
        FaultPlan p;
        p.dir = watch;
        return p;
    }
};

// Steps 1..3 saved, 2 and 3 still there: the next save deletes 2.
const Place& three_saves() {
    static Place place;
    static const RunReport report = run_saves(place.plan(), place.out, 1, 3);
    if (report.saved.size() != 3) throw std::runtime_error("the saves before the faults failed");
    return place;
}
}  // namespace

// The kinds of the counted calls of a run, in order.
static std::vector<std::pair<std::string, std::string>> calls_of(
    const std::vector<FaultRecord>& log) {
    std::vector<std::pair<std::string, std::string>> calls;
    for (const FaultRecord& r : log)
        if (r.op == FaultOp::Call) calls.push_back({r.to, r.path});
    return calls;
}

// After a fault the next start saves again and leaves nothing unfinished behind.
static std::string judge_next_save(const Place& p, int64_t step) {
    const RunReport next = run_saves(p.plan(), p.out, step, step);
    if (next.crashed || !next.saved.count(step))
        return "the next save failed: " + next.error +
               (next.refused.empty() ? "" : next.refused.begin()->second);
    for (const std::string& name : dir_list(dir_open(ckpt_dir(p.out)), "ckpt"))
        if (is_unfinished(name)) return name + " was left behind";
    return judge_directory(p.out, {step});
}

// Kills a run that saves first..last at each of its calls, in writes also half-way through; what
// was acknowledged must be found.
static int kill_everywhere(const std::function<void(Place&)>& prepare, int64_t before,
                           int64_t first, int64_t last) {
    Place p;
    prepare(p);
    FaultPlan plan = p.plan();
    plan.log = p.log;
    run_saves(plan, p.out, first, last);
    const auto calls = calls_of(fault_log_read(p.log));
    plan.log.clear();
    int points = 0;
    for (int n = 1; n <= int(calls.size()); n++)
        for (const bool torn : {false, true}) {
            if (torn && calls[size_t(n) - 1].first != "Write") continue;
            prepare(p);
            plan.kill_at = n, plan.kill_torn = torn;
            const RunReport r = run_saves(plan, p.out, first, last);
            EXPECT_TRUE(r.killed);
            points++;
            const int64_t sure = r.saved.empty() ? before : r.saved.rbegin()->first;
            const int64_t under_way = std::max(sure + 1, first);
            const std::string wrong =
                fs::exists(p.out) ? judge_directory(p.out, {sure, under_way}) : "";
            EXPECT_EQ(wrong, "") << "killed at call " << n << (torn ? ", torn" : "");
            EXPECT_EQ(judge_next_save(p, last + 1), "") << "killed at call " << n;
            if (testing::Test::HasFailure()) return points;
        }
    return points;
}

TEST(fault, a_save_with_a_deletion_killed_at_every_call) {
    const int points = kill_everywhere([](Place& p) { p.copy(three_saves()); }, 3, 4, 4);
    std::cout << "kill points in a resume, a save and a deletion: " << points << "\n";
    EXPECT_GT(points, 100);
}

TEST(fault, a_first_start_killed_at_every_call) {
    const auto nothing = [](Place& p) {
        fs::remove_all(p.watch);
        fs::create_directories(p.watch);
    };
    const int points = kill_everywhere(nothing, -1, 1, 2);
    std::cout << "kill points in a first start and two saves: " << points << "\n";
    EXPECT_GT(points, 100);
}

TEST(fault, a_start_that_refuses_a_checkpoint_killed_at_every_call) {
    const auto damaged = [](Place& p) {
        p.copy(three_saves());
        fs::resize_file(ckpt_dir(p.out) + "/" + step_name(3) + "/shards/rank-00000.h5", 100);
    };
    Place p;
    int points = 0;
    for (int n = 1;; n++, points++) {
        damaged(p);
        FaultPlan plan = p.plan();
        plan.kill_at = n;
        const RunReport r = run_saves(plan, p.out, 4, 4);
        if (!r.killed) break;
        // Step 3 is refused by now or will be; step 2 or the new one is found.
        const RunReport next = run_saves(p.plan(), p.out, 5, 5);
        EXPECT_TRUE(next.resumed == 2 || next.resumed == 4) << "killed at call " << n;
        EXPECT_TRUE(next.saved.count(5)) << next.error;
        EXPECT_TRUE(fs::exists(ckpt_dir(p.out) + "/" + step_name(3) + ".bad") ||
                    fs::exists(ckpt_dir(p.out) + "/" + step_name(3)) || next.resumed == 4);
        if (HasFailure()) return;
    }
    std::cout << "kill points in a start that refuses a checkpoint: " << points << "\n";
    EXPECT_GT(points, 100);
}

// ---- failing calls

// What the system may answer to a call of this kind; 0 is a write or read of half the bytes.
static std::vector<int> errors_of(const std::string& op) {
    if (op == "Open") return {EIO, EMFILE, EACCES, EINTR};
    if (op == "Create") return {ENOSPC, EIO, EACCES};
    if (op == "Read") return {EIO, EINTR, 0};
    if (op == "Write") return {ENOSPC, EIO, EINTR, 0};
    if (op == "Sync") return {EIO, ENOSPC, EINTR};
    if (op == "Mkdir") return {ENOSPC, EACCES};
    if (op == "Close") return {EIO};
    return {EIO};
}

static std::vector<FaultRecord> log_of_fourth_save(Place& p) {
    p.copy(three_saves());
    FaultPlan plan = p.plan();
    plan.log = p.log;
    run_saves(plan, p.out, 4, 4);
    return fault_log_read(p.log);
}

TEST(fault, every_call_failing_in_every_way) {
    Place p;
    const auto calls = calls_of(log_of_fourth_save(p));
    int runs = 0, reported = 0, unharmed = 0;
    for (size_t n = 0; n < calls.size(); n++)
        for (const int error : errors_of(calls[n].first)) {
            p.copy(three_saves());
            FaultPlan plan = p.plan();
            plan.fail_at = int(n) + 1, plan.fail_errno = error;
            const RunReport r = run_saves(plan, p.out, 4, 4);
            const std::string where = str("call ", n + 1, ", ", calls[n].second, ", error ", error);
            runs++;
            // Interrupted calls are repeated, short ones continued.
            const bool harmless = error == 0 || error == EINTR;
            EXPECT_TRUE(r.saved.count(4) || !harmless) << where;
            EXPECT_TRUE(r.saved.count(4) || r.refused.count(4) || !r.error.empty()) << where;
            EXPECT_EQ(r.leaked, 0) << where;
            EXPECT_FALSE(r.crashed) << where;
            // The reason that a person reads is the system's own.
            const std::string reason = r.refused.count(4) ? r.refused.at(4) : r.error;
            EXPECT_TRUE(reason.empty() || reason.find(std::strerror(error)) != std::string::npos)
                << where << ": " << reason;
            r.saved.count(4) ? unharmed++ : reported++;
            const std::vector<int64_t> allowed =
                r.saved.count(4) ? std::vector<int64_t>{4} : std::vector<int64_t>{3, 4};
            EXPECT_EQ(judge_directory(p.out, allowed), "") << where;
            const bool as_if_nothing = r.saved.count(4) && r.complaints.empty();
            EXPECT_EQ(as_if_nothing ? "" : judge_next_save(p, 5), "") << where;
            if (HasFailure()) return;
        }
    std::cout << "failing calls: " << runs << " (" << reported << " reported as failed, "
              << unharmed << " saved all the same)\n";
    EXPECT_GT(reported, 50);
}

TEST(fault, a_disk_that_stays_full_from_any_call_on) {
    Place p;
    const auto calls = calls_of(log_of_fourth_save(p));
    int runs = 0;
    for (size_t n = 0; n < calls.size(); n++) {
        const std::string& op = calls[n].first;
        if (op != "Create" && op != "Write" && op != "Mkdir") continue;
        p.copy(three_saves());
        FaultPlan plan = p.plan();
        plan.fail_at = int(n) + 1, plan.fail_errno = ENOSPC, plan.stays = true;
        const RunReport r = run_saves(plan, p.out, 4, 6);
        runs++;
        // The run goes on without saving; what was there stays, and nothing leaks.
        EXPECT_TRUE(!r.error.empty() || r.saved.size() + r.refused.size() == 3u) << calls[n].second;
        EXPECT_EQ(r.leaked, 0) << calls[n].second;
        EXPECT_FALSE(r.crashed) << calls[n].second;
        const int64_t sure = r.saved.empty() ? 3 : r.saved.rbegin()->first;
        EXPECT_EQ(judge_directory(p.out, {sure}), "") << calls[n].second;
        EXPECT_EQ(judge_next_save(p, 7), "") << calls[n].second;
        if (HasFailure()) return;
    }
    std::cout << "disks full from a call on: " << runs << "\n";
    EXPECT_GT(runs, 20);
}

TEST(fault, no_room_is_known_before_anything_is_written) {
    Place p;
    p.copy(three_saves());
    FaultPlan plan = p.plan();
    plan.free_bytes = 4096, plan.log = p.log;
    const RunReport r = run_saves(plan, p.out, 4, 4);
    ASSERT_TRUE(r.refused.count(4));
    EXPECT_NE(r.refused.at(4).find("no room"), std::string::npos) << r.refused.at(4);
    for (const FaultRecord& record : fault_log_read(p.log))
        EXPECT_EQ(record.path.find("step-0000000004"), std::string::npos);
}

// The shards alone, for which 64 KiB and 2 KiB a piece are reckoned beside their data, would fit;
// the view and the manifest, 64 KiB and more, would not.
TEST(fault, room_for_the_shards_is_not_enough) {
    Place p;
    p.copy(three_saves());
    int64_t shards = 0;
    for (const auto& shard : fs::directory_iterator(p.out + "/ckpt/step-0000000003/shards"))
        shards += int64_t(shard.file_size());
    FaultPlan plan = p.plan();
    plan.free_bytes = shards + (100 << 10);
    const RunReport r = run_saves(plan, p.out, 4, 4);
    ASSERT_TRUE(r.refused.count(4));
    EXPECT_NE(r.refused.at(4).find("no room"), std::string::npos) << r.refused.at(4);
}

TEST(fault, a_bit_flipped_on_the_way_to_the_disk) {
    Place p;
    const auto calls = calls_of(log_of_fourth_save(p));
    int flips = 0, refused = 0;
    for (size_t n = 0; n < calls.size(); n++) {
        if (calls[n].first != "Write") continue;
        p.copy(three_saves());
        FaultPlan plan = p.plan();
        plan.flip_at = int(n) + 1;
        const RunReport r = run_saves(plan, p.out, 4, 4);
        flips++;
        refused += int(r.refused.count(4));
        // Some of HDF5's first writes are overwritten at its close: then nothing is wrong.
        const std::vector<int64_t> allowed =
            r.saved.count(4) ? std::vector<int64_t>{4} : std::vector<int64_t>{3};
        EXPECT_EQ(judge_directory(p.out, allowed), "") << calls[n].second;
    }
    std::cout << "flipped writes: " << flips << ", of which refused as a save: " << refused << "\n";
    EXPECT_GT(refused, 10);
}

// ---- power loss

// A run of four saves, keep 2, logged from the making of OUT on.
static std::vector<FaultRecord> log_of_four_saves(Place& p, const FaultPlan& extra, RunReport& r) {
    fs::remove_all(p.watch);
    fs::create_directories(p.watch);
    FaultPlan plan = extra;
    plan.dir = p.watch, plan.log = p.log;
    r = run_saves(plan, p.out, 1, 4);
    return fault_log_read(p.log);
}

TEST(fault, the_log_accounts_for_every_byte_on_the_disk) {
    Place p;
    RunReport r;
    Disk disk;
    for (const FaultRecord& record : log_of_four_saves(p, {}, r)) disk.add(record);
    EXPECT_EQ(disk.after([](size_t) { return Fate::Kept; }), tree_read(p.watch));
    EXPECT_EQ(judge_clean_end(r, p.out, 1, 4, 2), "");
}

TEST(fault, power_loss_at_every_change) {
    Place p;
    RunReport r;
    const auto log = log_of_four_saves(p, {}, r);
    const PowerLossResult result = judge_power_loss(log, OUT, p.scratch.path, 30);
    EXPECT_EQ(result.wrong, "");
    std::cout << "power-loss states: " << result.states
              << ", of which differ for a start: " << result.distinct << "\n";
    EXPECT_GT(result.distinct, 50);
}

TEST(fault, power_loss_in_a_run_that_continues_a_killed_one) {
    Place p;
    int64_t states = 0;
    for (int n = 1;; n++) {
        fs::remove_all(p.watch);
        fs::create_directories(p.watch);
        FaultPlan plan = p.plan();
        plan.log = p.log, plan.kill_at = n;
        const RunReport killed = run_saves(plan, p.out, 1, 1);
        std::vector<FaultRecord> log = fault_log_read(p.log);
        plan.kill_at = 0;
        const RunReport next = run_saves(plan, p.out, 2, 2);
        ASSERT_TRUE(next.saved.count(2)) << next.error;
        for (const FaultRecord& record : fault_log_read(p.log)) log.push_back(record);
        const PowerLossResult result = judge_power_loss(log, OUT, p.scratch.path, 5, true);
        states += result.states;
        EXPECT_EQ(result.wrong, "") << "killed at call " << n;
        if (!killed.killed || HasFailure()) break;
    }
    EXPECT_GT(states, 0);
    std::cout << "power-loss states after a kill: " << states << "\n";
}

TEST(fault, power_loss_after_a_save_that_failed_at_its_last_sync_and_is_repeated) {
    Place p;
    RunReport r;
    const auto calls = calls_of(log_of_four_saves(p, {}, r));
    FaultPlan plan = p.plan();
    for (size_t n = 0; n < calls.size(); n++)
        if (calls[n].second.find("Sync runs/out/ckpt after Rename runs/out/ckpt/step-#.tmp-#") == 0)
            plan.fail_at = int(n) + 1;  // the last one is that of step 4
    ASSERT_GT(plan.fail_at, 0);
    plan.fail_errno = EIO;
    std::vector<FaultRecord> log = log_of_four_saves(p, plan, r);
    EXPECT_TRUE(r.refused.count(4) && r.saved.count(3));
    // Step 4 has its final name, but the name may not be durable. The next start resumes from it
    // and saves it again, which costs nothing, and from then on it must stay.
    plan = p.plan();
    plan.log = p.log;
    const RunReport again = run_saves(plan, p.out, 4, 4);
    EXPECT_EQ(again.resumed, 4);
    EXPECT_TRUE(again.saved.count(4));
    for (const FaultRecord& record : fault_log_read(p.log)) log.push_back(record);
    EXPECT_EQ(judge_power_loss(log, OUT, p.scratch.path, 30, true).wrong, "");
}

// ---- the test of the tests

// Runs the saves with one kind of call left undone; the first verdict that notices.
static std::string noticed(Place& p, const FaultPlan& extra) {
    RunReport r;
    const auto log = log_of_four_saves(p, extra, r);
    const std::string at_end = judge_clean_end(r, p.out, 1, 4, 2);
    if (!at_end.empty()) return at_end;
    return judge_power_loss(log, OUT, p.scratch.path, 10).wrong;
}

TEST(fault, each_sync_rename_write_and_deletion_is_missed_if_left_out) {
    Place p;
    RunReport r;
    // Every such call that changed something; HDF5's writes are its own affair, and taken together.
    std::vector<std::string> sites = {"Write runs/out/ckpt/step-#.tmp-#/shards/*"};
    const std::vector<FaultRecord> log = log_of_four_saves(p, {}, r);
    for (size_t i = 0; i + 1 < log.size(); i++) {
        const std::string &op = log[i].to, &site = log[i].path;
        if (log[i].op != FaultOp::Call || log[i + 1].op == FaultOp::Call) continue;
        const bool asked = op == "Sync" || op == "Rename" || op == "Unlink" || op == "Rmdir" ||
                           (op == "Write" && site.find("/shards/") == std::string::npos);
        if (asked && std::find(sites.begin(), sites.end(), site) == sites.end())
            sites.push_back(site);
    }
    for (const std::string& site : sites) {
        FaultPlan plan;
        plan.ignore = site;
        const std::string wrong = noticed(p, plan);
        EXPECT_NE(wrong, "") << "nobody misses: " << site;
        std::cout << "without [" << site << "]: " << wrong.substr(0, 120) << "\n";
    }
    std::cout << "kinds of calls left out: " << sites.size() << "\n";
    EXPECT_GT(sites.size(), 15u);
}

TEST(fault, reading_back_is_missed_if_left_out) {
    Place p;
    RunReport r;
    const auto calls = calls_of(log_of_four_saves(p, {}, r));
    int missed = 0;
    for (size_t n = 0; n < calls.size(); n++) {
        if (calls[n].first != "Write" || calls[n].second.find("step-") == std::string::npos)
            continue;
        FaultPlan plan;
        plan.flip_at = int(n) + 1, plan.hide_flip = true;
        RunReport hidden;
        log_of_four_saves(p, plan, hidden);
        // Acknowledged, yet damaged: unless retention has deleted it since, the verdict says so.
        if (hidden.saved.size() == 4 && !judge_clean_end(hidden, p.out, 1, 4, 2).empty()) missed++;
    }
    EXPECT_GT(missed, 5);
    std::cout << "flips that only reading back notices: " << missed << "\n";
}

int main(int argc, char** argv) {
    testing::InitGoogleTest(&argc, argv);
    omp_set_num_threads(1);  // runs are forked processes: libgomp's pool does not survive a fork
    return RUN_ALL_TESTS();
}
