#include "llmc/train/trace.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "llmc/core/check.h"
#include "llmc/core/plural.h"
#include "llmc/core/round.h"
#include "llmc/io/checkpoint_agree.h"
#include "llmc/parallel/timeline.h"

static double origin = 0;
static std::atomic<bool> written{false};

// One event a line; times in microseconds.
static std::string events_text(const Timeline& t, int rank) {
    std::string text;
    const auto line = [&](const nlohmann::json& event) { text += event.dump() + ",\n"; };
    const auto name = [&](const char* kind, int thread, const std::string& value) {
        line({{"ph", "M"},
              {"name", kind},
              {"pid", rank},
              {"tid", thread},
              {"args", {{"name", value}}}});
    };
    name("process_name", 0, str("rank ", rank));
    constexpr const char* rows[] = {"training", "communication", "saving", "GPU",
                                    "GPU, communication"};
    const bool gpu = std::any_of(t.spans.begin(), t.spans.end(),
                                 [](const TimelineSpan& s) { return s.row >= Row::Gpu; });
    for (int row = 0; row < (gpu ? 5 : 3); row++) name("thread_name", row, rows[row]);
    for (const TimelineSpan& s : t.spans) {
        nlohmann::json event = {{"ph", "X"},
                                {"name", *s.what ? str(s.name, ", ", s.what) : str(s.name)},
                                {"cat", s.bytes >= 0 ? "communication" : "work"},
                                {"pid", rank},
                                {"tid", int(s.row)},
                                {"ts", 1e6 * (s.begin - origin)},
                                {"dur", 1e6 * (s.end - s.begin)}};
        if (s.bytes >= 0) event["args"] = {{"bytes", s.bytes}};
        line(event);
    }
    if (t.dropped)
        line({{"ph", "i"},
              {"name", str(t.dropped, " later events were not kept")},
              {"pid", rank},
              {"tid", 0},
              {"s", "p"},
              {"ts", 1e6 * (t.spans.back().end - origin)}});
    return text;
}

static void file_begin(std::ofstream& file) {
    file << "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n";
}
// False: the file is not whole.
static bool file_end(std::ofstream& file) {
    file << "{\"ph\": \"M\", \"name\": \"process_sort_index\", \"pid\": 0, \"args\": "
            "{\"sort_index\": 0}}\n]}\n";
    file.close();
    return bool(file);
}

// A rank's part travels in pieces, through a buffer that is there: neither side can lack memory.
constexpr int64_t kWords = 1 << 14;

static void part_send(const std::string& text, Comm& comm) {
    const int64_t bytes = int64_t(text.size());
    comm.send(&bytes, 1, 0, "length of a rank's trace");
    int32_t piece[kWords] = {};
    for (int64_t at = 0, n; at < bytes; at += n) {
        n = std::min<int64_t>(bytes - at, sizeof piece);
        std::memcpy(piece, text.data() + at, size_t(n));
        comm.send(piece, size_t(ceil_div(n, 4)), 0, "a rank's trace");
    }
}

// False: the rank had no part to send. What cannot be written is taken all the same.
static bool part_receive(std::ofstream& file, int rank, Comm& comm) {
    int64_t bytes = 0;
    comm.recv(&bytes, 1, rank, "length of a rank's trace");
    int32_t piece[kWords] = {};
    for (int64_t at = 0, n; at < bytes; at += n) {
        n = std::min<int64_t>(bytes - at, sizeof piece);
        comm.recv(piece, size_t(ceil_div(n, 4)), rank, "a rank's trace");
        file.write(reinterpret_cast<const char*>(piece), n);
    }
    return bytes > 0;
}

// Called by the thread that trains, and by the watchdog of one that hangs: the first one writes.
static void part_write(const std::string& path, int rank) noexcept try {
    if (written.exchange(true)) return;
    std::ofstream file(rank ? str(path, ".", rank) : path);
    file_begin(file);
    file << events_text(timeline_take(), rank);
    file_end(file);
} catch (...) {
    // Something worse is being reported.
}

Trace::Trace(const std::string& path, Comm& comm, Watchdog& watchdog) : path_(path), comm_(comm) {
    if (path.empty()) return;
    const auto error = agree_on_root(comm, [&] {
        const std::ofstream file(path, std::ios::app);
        CHECK(file.good(), Exit::Usage, "cannot write --trace " + path, std::strerror(errno));
    });
    if (error) throw *error;
    comm.barrier("start of the trace");
    origin = comm_clock();
    written = false;
    timeline_start();
    watchdog.last_words([path, rank = comm.rank()] { part_write(path, rank); });
}

Trace::~Trace() {
    if (!path_.empty()) part_write(path_, comm_.rank());
}

// This rank's part, empty if there is no memory for it.
static std::string part(int rank) try {
    return events_text(timeline_take(), rank);
} catch (const std::exception&) {
    return "";
}

void Trace::write() {
    if (path_.empty()) return;
    const std::string mine = part(comm_.rank());
    written = true;
    if (comm_.rank() != 0) return part_send(mine, comm_);
    std::ofstream file(path_);
    file_begin(file);
    file << mine;
    int missing = mine.empty();
    for (int r = 1; r < comm_.size(); r++) missing += !part_receive(file, r, comm_);
    if (!file_end(file))
        std::fprintf(stderr, "warning: the trace %s could not be written\n", path_.c_str());
    if (missing)
        std::fprintf(stderr, "warning: the trace %s lacks %s, for want of memory\n", path_.c_str(),
                     counted(missing, "rank").c_str());
}
