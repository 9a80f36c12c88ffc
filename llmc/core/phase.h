// llmc/core/phase.h: where the time of a step goes, measured around the CPU's ops.
//
// An op opens `const PhaseTimer timer(Phase::Attention);` and its wall time is added to the phase.
// One clock read at each end (some 50 ns) against ops of 10 us and more.
#pragma once
#include <array>
#include <chrono>

enum class Phase { MatmulForward, MatmulBackward, Attention, Classifier, Optimizer, Other, Count };

inline const char* phase_name(Phase p) {
    constexpr const char* names[] = {"matmul forward", "matmul backward", "attention",
                                     "classifier",     "norm, AdamW",     "other"};
    return names[int(p)];
}

// Seconds of each phase since the thread began: the one that trains, seldom the one that sends.
inline thread_local std::array<double, int(Phase::Count)> phase_seconds{};

class PhaseTimer {
  public:
    explicit PhaseTimer(Phase phase) : phase_(phase), begin_(std::chrono::steady_clock::now()) {}
    ~PhaseTimer() {
        phase_seconds[size_t(phase_)] +=
            std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    }
    PhaseTimer(const PhaseTimer&) = delete;
    PhaseTimer& operator=(const PhaseTimer&) = delete;

  private:
    Phase phase_;
    std::chrono::steady_clock::time_point begin_;
};
