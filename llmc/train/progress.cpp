// llmc/train/progress.cpp: drawing and wiping the live line; numbers for people.
#include "llmc/train/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "llmc/core/check.h"
#include "llmc/parallel/comm_mpi.h"
#include "llmc/parallel/liveness.h"

namespace {

bool line_is_shown = false;

bool is_set(const char* name) {
    const char* value = std::getenv(name);
    return value && *value && std::string_view(value) != "0";
}

// A terminal that somebody looks at. What mpirun and srun start may find one behind its output, and
// yet what comes out of the launcher may go to a file.
bool is_live_terminal(int fd) {
    const char* term = std::getenv("TERM");
    const bool launched = launched_processes(std::getenv) > 0;
    return isatty(fd) && !launched && !(term && std::string_view(term) == "dumb");
}

size_t terminal_width() {
    winsize size{};
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col : 80;
}

}  // namespace

Progress::Progress(std::string what, int64_t total)
    : what_(std::move(what)), total_(std::max<int64_t>(total, 1)), start_(Clock::now()) {}

Progress::~Progress() {
    progress_clear();
}

void Progress::update(int64_t done, const std::string& note) {
    liveness_mark();
    if (!is_live_terminal(STDERR_FILENO)) return;
    const auto now = Clock::now();
    if (first_ < 0) first_ = done, start_ = now;  // a resumed run starts in the middle
    if (line_is_shown && now - shown_ < std::chrono::milliseconds(100) && done < total_) return;
    shown_ = now;

    constexpr int width = 24;
    const double share = std::clamp(double(done) / double(total_), 0.0, 1.0);
    const int filled = int(share * width);
    std::string bar(size_t(filled), '=');
    if (filled < width) bar += '>' + std::string(size_t(width - filled - 1), ' ');

    const double seconds = std::chrono::duration<double>(now - start_).count();
    std::string eta = "-";
    if (done > first_) eta = duration_text(seconds * double(total_ - done) / double(done - first_));
    std::string line = str(what_, " [", bar, "] ", int(share * 100), "%  ", grouped(done), "/",
                           grouped(total_), "  ETA ", eta, note.empty() ? "" : "  " + note);
    line.resize(std::min(line.size(), terminal_width() - 1));
    std::fprintf(stderr, "\r\033[K%s", line.c_str());
    std::fflush(stderr);
    line_is_shown = true;
}

void progress_clear() {
    if (!line_is_shown) return;
    std::fputs("\r\033[K", stderr);
    std::fflush(stderr);
    line_is_shown = false;
}

std::string duration_text(double seconds) {
    if (!(seconds >= 0 && seconds < 1e9)) return "-";
    const int64_t s = std::llround(seconds), m = s / 60, h = m / 60, d = h / 24;
    char text[64];
    if (m == 0)
        std::snprintf(text, sizeof text, "%llds", (long long)s);
    else if (h == 0)
        std::snprintf(text, sizeof text, "%lldm%02llds", (long long)m, (long long)s % 60);
    else if (d == 0)
        std::snprintf(text, sizeof text, "%lldh%02lldm", (long long)h, (long long)m % 60);
    else
        std::snprintf(text, sizeof text, "%lldd%02lldh", (long long)d, (long long)h % 24);
    return text;
}

bool colours_wanted(int fd) {
    const char* no_color = std::getenv("NO_COLOR");
    if (no_color && *no_color) return false;
    if (is_set("CLICOLOR_FORCE") || is_set("FORCE_COLOR")) return true;
    return is_live_terminal(fd);
}
