#include "llmc/train/trace.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "llmc/core/check.h"
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

// False: the file is not whole.
static bool file_write(const std::string& path, const std::vector<std::string>& parts) {
    std::ofstream file(path);
    file << "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n";
    for (const std::string& text : parts) file << text;
    file << "{\"ph\": \"M\", \"name\": \"process_sort_index\", \"pid\": 0, \"args\": "
            "{\"sort_index\": 0}}\n]}\n";
    file.close();
    return bool(file);
}

// Called by the thread that trains, and by the watchdog of one that hangs: the first one writes.
static void part_write(const std::string& path, int rank) noexcept try {
    if (written.exchange(true)) return;
    file_write(rank ? str(path, ".", rank) : path, {events_text(timeline_take(), rank)});
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

void Trace::write() {
    if (path_.empty()) return;
    const std::vector<std::string> all =
        gather_text(comm_, events_text(timeline_take(), comm_.rank()));
    written = true;
    if (comm_.rank() == 0 && !file_write(path_, all))
        std::fprintf(stderr, "warning: the trace %s could not be written\n", path_.c_str());
}
