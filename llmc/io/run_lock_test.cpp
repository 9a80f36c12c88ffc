// llmc/io/run_lock_test.cpp: one run at a time, only in directories of ours.
#include "llmc/io/run_lock.h"

#include <algorithm>
#include <chrono>
#include <fstream>

#include "llmc/core/check.h"
#include "llmc/io/checkpoint_testing.h"

namespace fs = std::filesystem;

// The error of taking the lock, "" if it succeeds. Taken in a process of its own: a process does
// not exclude itself with fcntl locks.
static std::string refused(const std::string& out, double patience = 0) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    const pid_t pid = ::fork();
    if (pid == 0) {
        std::string text;
        try {
            auto comm = comm_self();
            RunLock lock(out, "run-b", *comm, patience);
        } catch (const Error& e) {
            text = str(int(e.code), " ", e.what());
        }
        ::_exit(::write(ends[1], text.data(), text.size()) != ssize_t(text.size()));
    }
    ::close(ends[1]);
    char text[4096];
    const ssize_t n = ::read(ends[0], text, sizeof text);
    ::close(ends[0]);
    ::waitpid(pid, nullptr, 0);
    return std::string(text, size_t(std::max<ssize_t>(n, 0)));
}

// A process that holds the lock of `out` for so many milliseconds.
static pid_t hold(const std::string& out, int ms) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    const pid_t pid = ::fork();
    if (pid == 0) {
        auto comm = comm_self();
        RunLock lock(out, "run-a", *comm);
        if (::write(ends[1], "x", 1) == 1) ::usleep(useconds_t(ms) * 1000);
        ::_exit(0);
    }
    char x;
    EXPECT_EQ(::read(ends[0], &x, 1), 1);
    ::close(ends[0]), ::close(ends[1]);
    return pid;
}

static bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

TEST(run_lock, makes_the_directory_and_says_whose_it_is) {
    ScratchDir scratch;
    const std::string out = scratch.path + "/a/b/out";
    auto comm = comm_self();
    EXPECT_EQ(run_owner(out), "");
    { RunLock lock(out, "run-a", *comm); }
    EXPECT_EQ(run_owner(out), "run-a");
    RunLock again(out, "run-c", *comm);
    std::ifstream in(out + "/owner.json");
    const auto owner = nlohmann::json::parse(in);
    EXPECT_EQ(owner["run_id"], "run-c");
    EXPECT_EQ(owner["pid"], ::getpid());
}

TEST(run_lock, a_second_run_is_refused_and_told_who_runs) {
    ScratchDir scratch;
    const std::string out = scratch.path + "/out";
    auto comm = comm_self();
    {
        RunLock lock(out, "run-a", *comm);
        const std::string text = refused(out);
        EXPECT_TRUE(contains(text, "2 ")) << text;
        EXPECT_TRUE(contains(text, "run-a")) << text;
        EXPECT_TRUE(contains(text, std::to_string(::getpid()))) << text;
    }
    // Its files are still there; a lock that nobody holds does not block.
    EXPECT_TRUE(fs::exists(out + "/.lock"));
    EXPECT_EQ(refused(out), "");
}

TEST(run_lock, a_killed_run_leaves_no_lock) {
    ScratchDir scratch;
    const std::string out = scratch.path + "/out";
    const pid_t pid = hold(out, 60'000);
    EXPECT_TRUE(contains(refused(out), str("process ", pid)));
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    EXPECT_EQ(refused(out), "");
}

TEST(run_lock, who_has_patience_waits_for_the_other_run) {
    ScratchDir scratch;
    const std::string out = scratch.path + "/out";
    const auto begin = std::chrono::steady_clock::now();
    const auto seconds = [&] {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    const pid_t other = hold(out, 5000);
    const auto still_holds = [&] { return ::waitpid(other, nullptr, WNOHANG) == 0; };
    EXPECT_TRUE(contains(refused(out), "run-a") && still_holds());
    EXPECT_TRUE(contains(refused(out, 0.3), "run-a") && still_holds());
    ::testing::internal::CaptureStderr();
    EXPECT_TRUE(on_ranks(3, [&](Comm& comm) { RunLock lock(out, "run-c", comm, 60); }));
    EXPECT_GE(seconds(), 4.9);
    EXPECT_LT(seconds(), 50);
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_TRUE(contains(said, "run-a") && contains(said, "up to 60 s")) << said;
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
    EXPECT_EQ(run_owner(out), "run-c");
    ::waitpid(other, nullptr, 0);
}

// On every rank with the same error, as soon as one of them wants to stop.
TEST(run_lock, who_is_told_to_stop_waits_no_longer) {
    ScratchDir scratch;
    const std::string out = scratch.path + "/out";
    const pid_t other = hold(out, 60'000);
    EXPECT_TRUE(on_ranks(3, [&](Comm& comm) {
        int asked = 0;
        try {
            RunLock lock(out, "run-c", comm, 50, [&] { return ++asked > 3 && comm.rank() == 1; });
            ADD_FAILURE() << "took what another run holds";
        } catch (const Error& e) {
            EXPECT_EQ(e.code, Exit::Signalled) << e.what();
        }
    }));
    EXPECT_EQ(::waitpid(other, nullptr, WNOHANG), 0);
    ::kill(other, SIGKILL);
    ::waitpid(other, nullptr, 0);
}

TEST(run_lock, directories_of_others_are_refused_and_left_alone) {
    ScratchDir scratch;
    std::ofstream(scratch.path + "/thesis.txt") << "mine";
    const std::string text = refused(scratch.path);
    EXPECT_TRUE(contains(text, "2 ") && contains(text, "thesis.txt")) << text;
    EXPECT_EQ(std::distance(fs::directory_iterator(scratch.path), fs::directory_iterator()), 1);
    // An owner.json of another program does not make it ours; one of ours does.
    std::ofstream(scratch.path + "/owner.json") << R"({"program":"other","run_id":"x"})";
    EXPECT_TRUE(contains(refused(scratch.path), "2 "));
    std::ofstream(scratch.path + "/owner.json") << R"({"program":"train_gpt","run_id":"x"})";
    EXPECT_EQ(refused(scratch.path), "");
}

TEST(run_lock, what_cannot_be_used_is_refused_with_its_reason) {
    ScratchDir scratch;
    std::ofstream(scratch.path + "/file") << "x";
    for (const char* path : {"/file", "/file/out"}) {
        const std::string text = refused(scratch.path + path);
        EXPECT_TRUE(contains(text, "2 --out") && contains(text, "Not a directory")) << text;
    }
    const std::string text = refused("/proc/out");
    EXPECT_TRUE(contains(text, "2 ") && contains(text, "/proc/out")) << text;
    if (::geteuid() != 0) {
        fs::create_directory(scratch.path + "/shut");
        fs::permissions(scratch.path + "/shut", fs::perms(0555));
        EXPECT_TRUE(contains(refused(scratch.path + "/shut"), "Permission denied"));
    }
    fs::create_symlink("/etc/hostname", scratch.path + "/.lock");
    std::ofstream(scratch.path + "/owner.json") << R"({"program":"train_gpt","run_id":"x"})";
    EXPECT_TRUE(contains(refused(scratch.path), "2 "));  // the lock file is a link: not followed
}

// Both begin at one moment; who has it leaves files of a run there.
TEST(run_lock, of_two_first_starts_the_second_hears_of_the_first) {
    ScratchDir scratch;
    std::string wrong;
    for (int round = 0; round < 40 && wrong.empty(); round++) {
        const std::string out = str(scratch.path, "/", round);
        int gate[2], ends[2];
        ASSERT_EQ(::pipe(gate) + ::pipe(ends), 0);
        pid_t pids[2];
        for (pid_t& pid : pids) {
            pid = ::fork();
            if (pid) continue;
            ::close(gate[1]);
            char c;
            std::string text;
            if (::read(gate[0], &c, 1) != 0) ::_exit(1);  // until the gate is shut
            try {
                auto comm = comm_self();
                RunLock lock(out, "run", *comm);
                std::ofstream(out + "/log.jsonl") << "\n";
                ::usleep(500);
            } catch (const Error& e) {
                text = e.what();
            }
            ::_exit(::write(ends[1], text.data(), text.size()) != ssize_t(text.size()));
        }
        for (const int fd : {gate[0], gate[1], ends[1]}) ::close(fd);
        for (const pid_t pid : pids) ::waitpid(pid, nullptr, 0);
        char text[4096];
        const std::string said(text, size_t(std::max<ssize_t>(::read(ends[0], text, 4096), 0)));
        ::close(ends[0]);
        if (!said.empty() && !contains(said, "is in use by another run")) wrong = said;
    }
    EXPECT_EQ(wrong, "");
}

TEST(run_lock, all_ranks_hear_the_same) {
    ScratchDir scratch;
    std::ofstream(scratch.path + "/thesis.txt") << "mine";
    EXPECT_TRUE(on_ranks(3, [&](Comm& comm) {
        EXPECT_THROW(RunLock(scratch.path, "run-a", comm), Error);
        RunLock lock(scratch.path + "/new", "run-a", comm);
        comm.barrier();
    }));
}

// Ranks whose --out is a name on disks of their own: nobody could read the checkpoint afterwards.
TEST(run_lock, every_rank_sees_the_directory_that_rank_0_has_taken) {
    ScratchDir scratch;
    for (const char* dir : {"/0", "/2"}) fs::create_directory(scratch.path + dir);
    fs::create_directory(scratch.path + "/2/ours");
    const std::string before = R"({"program":"train_gpt","run_id":"x"})";
    std::ofstream(scratch.path + "/2/ours/owner.json") << before;
    EXPECT_TRUE(on_ranks(3, [&](Comm& comm) {
        ASSERT_EQ(::chdir(str(scratch.path, "/", comm.rank() == 2 ? 2 : 0).c_str()), 0);
        try {
            RunLock lock("ours", "run-a", comm);
            ADD_FAILURE() << "taken";
        } catch (const Error& e) {
            EXPECT_EQ(e.code, Exit::Usage);
            EXPECT_TRUE(contains(e.what(), "rank 2: --out ours is another directory")) << e.what();
            EXPECT_TRUE(contains(e.what(), "run-a")) << e.what();
        }
    }));
    std::string after;
    std::getline(std::ifstream(scratch.path + "/2/ours/owner.json"), after);
    EXPECT_EQ(after, before);
}
