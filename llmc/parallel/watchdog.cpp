#include "llmc/parallel/watchdog.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "llmc/core/check.h"
#include "llmc/parallel/comm_behind.h"
#include "llmc/parallel/comm_nccl.h"
#include "llmc/parallel/liveness.h"

constexpr double kStopped = 2;  // seconds between two looks that only a stopped process has
constexpr int kLastWords = 15;  // tenths of a second; others wait longer for this rank (world.cpp)
constexpr double kFollow = 5;   // seconds in which ranks notice and say what failed (world.cpp)

static std::string phase_text(RunPhase phase, int64_t step) {
    constexpr const char* texts[] = {"at the start",
                                     "in step ",
                                     "in the validation of step ",
                                     "in the sample of step ",
                                     "in the save of step ",
                                     "in this command",
                                     "in this command"};
    const std::string text = texts[int(phase)];
    return text.ends_with(' ') ? str(text, step) : text;
}
static int limit_of(RunPhase phase) {
    const bool files = phase == RunPhase::Save || phase == RunPhase::Files;
    return phase == RunPhase::Start ? 0 : files ? 2 : 1;
}
constexpr const char* kLimitOptions[] = {"--start-limit", "--step-limit", "--save-limit"};
static std::string seconds_text(double s) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f s", s);
    return text;
}

// What a rank shows as its step: the step, and below it the time of its last progress in tenths of
// a second. Who waits in a collective for a rank that computes on waits for progress, not for a
// hang.
static int64_t progress_word(int64_t step, double at) {
    return step << 32 | int64_t(uint32_t(at * 10));
}
static int64_t shown_step(const RankStatus& rank) {
    return rank.step >> 32;
}
static double progress_of_host(const World& world) {
    double latest = 0;
    for (int r = 0; world.status && r < world.local_size; r++)
        latest = std::max(latest, 0.1 * double(uint32_t(world.status->ranks[r].step.load())));
    return latest;
}

// The first rank of each host asks for all of its host. A host that has stopped does not answer,
// and then nobody's progress is news any more.
static double progress_elsewhere(World& world, double now) {
    if (!world.mpi || world.mpi->hosts == 1) return 0;
    if (world.local_rank == 0)
        if (const double age = world.mpi->beat(now - progress_of_host(world)); age >= 0)
            world.status->elsewhere = now - age;
    return world.status->elsewhere;
}

Watchdog::Watchdog(World& world, const WatchLimits& of) : world_(world) {
    limits(of);
    liveness_mark();
    // Signals are for the threads that wait for them.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    thread_ = std::thread([this] { run(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Watchdog::~Watchdog() {
    {
        const std::lock_guard lock(end_mutex_);
        ending_ = true;
    }
    end_.notify_all();
    thread_.join();
}

// Until the next look; false: there is none, since the watchdog ends.
bool Watchdog::wait_a_while() {
    std::unique_lock lock(end_mutex_);
    return !end_.wait_for(lock, std::chrono::milliseconds(100), [&] { return ending_.load(); });
}

void Watchdog::limits(const WatchLimits& limits) {
    limits_[0] = limits.start, limits_[1] = limits.step, limits_[2] = limits.save;
}

void Watchdog::phase(RunPhase phase, int64_t step) {
    step_ = step;
    phase_ = phase;
    liveness_mark();
}

void Watchdog::last_words(std::function<void()> words) {
    const std::lock_guard lock(mutex_);
    last_words_ = std::move(words);
}

// In a thread of its own, which may hang as well: in a file system that does not answer.
void Watchdog::say_last_words() {
    const std::lock_guard lock(mutex_);
    if (!last_words_) return;
    const auto said = std::make_shared<std::atomic<bool>>(false);
    std::thread([said, words = last_words_] {
        words();
        *said = true;
    }).detach();
    for (int tenths = 0; tenths < kLastWords && !*said; tenths++)
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
}

void Watchdog::run() {
    for (double before = comm_clock(); wait_a_while();) {
        const double now = comm_clock();
        // This process has been stopped itself (^Z, a debugger): it counts from its continuation.
        if (now - before > kStopped) liveness_mark();
        before = now;
        const CommRecord last = comm_last(), behind = comm_last_behind();
        double latest = std::max({liveness_last(), last.begin, last.end});
        // Who waits for a save behind the run sees the save's progress; in a step it says nothing.
        if (phase_ == RunPhase::Save)
            latest = std::max({latest, behind.begin, behind.end, liveness_last_behind()});
        if (world_.status)
            world_.status->ranks[world_.local_rank].step = progress_word(step_, latest);
        update_status(now);
        look_for_the_dead();
        FOR_CUDA(look_at_gpus();)
        follow_failed_rank(now);
        const double idle =
            now - std::max({latest, progress_of_host(world_), progress_elsewhere(world_, now)});
        if (idle > limits_[limit_of(phase_)] && !ending_) report_hang(idle);
    }
}

void Watchdog::update_status(double now) {
    if (!world_.status) return;
    RankStatus& mine = world_.status->ranks[world_.local_rank];
    mine.phase = int(phase_.load()), mine.seq = comm_last().seq;
    mine.beat = now;
}

// A process that is there, and neither dead nor a zombie that nobody has fetched yet.
static bool is_alive(int pid) {
    std::ifstream file(str("/proc/", pid, "/stat"));
    std::string stat((std::istreambuf_iterator<char>(file)), {});
    const size_t state = stat.rfind(") ");  // behind the name, which may hold anything
    return state != std::string::npos && stat[state + 2] != 'Z' && stat[state + 2] != 'X';
}

// A killed rank's process vanishes without a word. Those who wait for it are told as if it had
// failed. Each rank looks after the next one. In containers that hide each other's processes it is
// left to mpirun.
void Watchdog::look_for_the_dead() {
    if (!world_.status || world_.status->failure) return;
    const int r = (world_.local_rank + 1) % world_.local_size;
    const int pid = world_.status->ranks[r].pid;
    if (is_alive(pid))
        seen_ = true;
    else if (seen_ && failure_tell(*world_.status, int(Exit::Hang), world_.rank))
        std::fprintf(stderr, "%serror: the process of local rank %d (%d) is gone %s\n",
                     world_prefix(world_).c_str(), r, pid, phase_text(phase_, step_).c_str());
}

// What NCCL notices is a failure like any other. Once a rank has failed nobody waits for it on a
// GPU: the host gets out of its wait, and leaves as those do that wait in host memory.
FOR_CUDA(void Watchdog::look_at_gpus() {
    if (world_.size == 1) return;
    if (const std::string error = nccl_async_error(); !error.empty()) {
        if (failure_tell(*world_.status, int(Exit::Resource), world_.rank))
            std::fprintf(stderr, "%serror: NCCL: %s %s; last collective %s\n",
                         world_prefix(world_).c_str(), error.c_str(),
                         phase_text(phase_, step_).c_str(), comm_text(comm_last()).c_str());
    }
    if (world_.status->failure) nccl_abort();
})

// Another rank has failed and said why; who waits for it in a collective has been told there.
void Watchdog::follow_failed_rank(double now) {
    const int32_t failed = world_.status ? world_.status->failure.load() : 0;
    if (!failed) return;
    if (failed_since_ == 0) failed_since_ = now;
    if (now - failed_since_ < kFollow || ending_) return;
    say_last_words();
    world_.status->ranks[world_.local_rank].done = 1;
    std::fflush(nullptr);
    const int code = failure_of(failed).code;
    if (world_.local_size < world_.size) world_.mpi->abort(code);  // the other hosts know nothing
    std::_Exit(code);
}

// Who has communicated least, and whose heart has stopped; ends the clause before it.
static std::string who_is_behind(const World& world) {
    if (!world.status) return "; ";
    const SharedStatus& s = *world.status;
    int64_t most = 0;
    for (int r = 0; r < world.local_size; r++) most = std::max(most, s.ranks[r].seq.load());
    const double now = comm_clock();
    std::string text;
    for (int r = 0; r < world.local_size; r++) {
        const RankStatus& rank = s.ranks[r];
        const double silent = now - rank.beat;
        if (rank.seq >= most && silent < 2) continue;
        text +=
            str(text.empty() ? "" : ", ", "local rank ", r, " (process ", rank.pid, ") is ",
                phase_text(RunPhase(rank.phase.load()), shown_step(rank)), " at collective #",
                rank.seq, silent < 2 ? "" : str(", no sign of life for ", seconds_text(silent)));
    }
    const bool hosts = world.local_size < world.size;
    return str("; ",
               !text.empty() ? text
               : hosts       ? "all ranks of this host are equally far: another host is behind"
                             : "all ranks are equally far",
               "; ");
}

void Watchdog::report_hang(double idle) {
    const RunPhase phase = phase_;
    const int code = int(Exit::Hang);
    const bool first = !world_.status || failure_tell(*world_.status, code, world_.rank);
    if (!first) return;  // another rank has told; follow_failed_rank ends this one
    const CommRecord behind = comm_last_behind();
    const std::string of_save = phase == RunPhase::Save && behind.seq
                                    ? str(", of the save behind the run ", comm_text(behind))
                                    : "";
    std::fprintf(stderr,
                 "%serror: no progress for %s %s; last collective %s%s; expected some every "
                 "%s%shint: if that is how slow it is, a larger %s\n",
                 world_prefix(world_).c_str(), seconds_text(idle).c_str(),
                 phase_text(phase, step_).c_str(), comm_text(comm_last()).c_str(), of_save.c_str(),
                 seconds_text(limits_[limit_of(phase)]).c_str(), who_is_behind(world_).c_str(),
                 kLimitOptions[limit_of(phase)]);
    std::fflush(nullptr);
    say_last_words();
    if (world_.status) {
        world_.status->ranks[world_.local_rank].done = 1;
        // Time for those who wait to leave with the same code.
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
    }
    if (world_.mpi && world_.local_size < world_.size) world_.mpi->abort(code);
    std::_Exit(code);
}
