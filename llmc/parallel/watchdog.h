// llmc/parallel/watchdog.h: no hang outlives a bound.
//
// A thread of its own on every rank looks ten times a second. Progress is a collective begun or
// ended, a phase entered, a layer computed, a token sampled, a piece of a file read or written
// (liveness.h). A rank without progress for longer than the limit of its phase says where it
// stands, what it communicated last and who is behind, and ends the job with exit code 6. A slow
// step is no hang: each layer is progress, of those too that wait for it on this host. Nor is a job
// that was stopped as a whole and goes on: time in which the watchdog itself did not run is not
// counted.
//
// The same thread sees that another process of this host has died, which nobody could tell, ends a
// rank that computes on while another has failed, and keeps the rank's line in SharedStatus up to
// date, heartbeat included: that of a stopped process stands still. The first ranks of several
// hosts tell each other when their hosts last progressed (MpiSession::beat).
#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "llmc/parallel/world.h"

// Of a run, and of a command that computes or that moves files.
enum class RunPhase { Start, Step, Evaluate, Sample, Save, Compute, Files };

struct WatchLimits {  // seconds without progress
    double start = 600, step = 300, save = 1800;
};

class Watchdog {
  public:
    Watchdog(World& world, const WatchLimits& limits);
    ~Watchdog();
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;
    void limits(const WatchLimits& limits);
    void phase(RunPhase phase, int64_t step = 0);
    // What is done before the watchdog ends this process, as long as it takes under 1.5 s. It must
    // hold all that it needs.
    void last_words(std::function<void()> words);

  private:
    void run();
    bool wait_a_while();
    void update_status(double now);
    void look_for_the_dead();
    void look_at_gpus();
    void follow_failed_rank(double now);
    void report_hang(double idle);
    void say_last_words();

    World& world_;
    std::atomic<double> limits_[3];  // of the start, a step, files
    std::atomic<RunPhase> phase_{RunPhase::Start};
    std::atomic<int64_t> step_{0};
    double failed_since_ = 0;
    std::mutex mutex_;
    std::function<void()> last_words_;
    bool seen_ = false;  // this process has seen that of its neighbour
    std::mutex end_mutex_;
    std::condition_variable end_;
    std::atomic<bool> ending_{false};
    std::thread thread_;  // last: it uses the others
};
