// llmc/train/progress.h: one live line at the bottom of a terminal, and nothing in a file.
//
//   Progress bar("validation", batches);
//   for (...) bar.update(i + 1);          // validation [=====>     ] 45%  9/20  ETA 12s
//
// The line goes to stderr, where that is a terminal and no launcher of ranks stands between, at
// most ten times a second, and is wiped by the destructor. Whoever prints to the terminal in
// between calls progress_clear() first; the next update draws it again.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>

class Progress {
  public:
    Progress(std::string what, int64_t total);
    ~Progress();
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;
    // `note` stands at the end of the line.
    void update(int64_t done, const std::string& note = "");

  private:
    using Clock = std::chrono::steady_clock;
    std::string what_;
    int64_t total_, first_ = -1;
    Clock::time_point start_, shown_{};
};

void progress_clear();

// "12s", "3m05s", "2h07m", "3d04h".
std::string duration_text(double seconds);
// "1,234,567".
inline std::string grouped(int64_t n) {
    std::string digits = std::to_string(n);
    for (int64_t at = int64_t(digits.size()) - 3; at > (n < 0); at -= 3)
        digits.insert(size_t(at), 1, ',');
    return digits;
}

// May this stream carry colours? A terminal other than TERM=dumb, and no mpirun or srun between, or
// CLICOLOR_FORCE or FORCE_COLOR (bixense.com/clicolors, force-color.org) says so; never against
// NO_COLOR (no-color.org).
bool colours_wanted(int fd);
