#include "llmc/train/trace.h"

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "llmc/core/check.h"
#include "llmc/io/checkpoint_agree.h"
#include "llmc/parallel/timeline.h"

static double origin = 0;

void trace_start(const std::string& path, Comm& comm) {
    if (path.empty()) return;
    comm.barrier();
    origin = comm_clock();
    timeline_start();
}

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
    name("thread_name", 0, "training");
    name("thread_name", 1, "communication");
    name("thread_name", 2, "saving");
    for (const TimelineSpan& s : t.spans) {
        nlohmann::json event = {{"ph", "X"},
                                {"name", *s.what ? str(s.name, ", ", s.what) : str(s.name)},
                                {"cat", s.bytes >= 0 ? "communication" : "work"},
                                {"pid", rank},
                                {"tid", s.thread},
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

void trace_write(const std::string& path, Comm& comm) {
    if (path.empty()) return;
    const std::vector<std::string> all =
        gather_text(comm, events_text(timeline_take(), comm.rank()));
    if (comm.rank() != 0) return;
    std::ofstream file(path);
    file << "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n";
    for (const std::string& text : all) file << text;
    file << "{\"ph\": \"M\", \"name\": \"process_sort_index\", \"pid\": 0, \"args\": "
            "{\"sort_index\": 0}}\n]}\n";
    file.close();
    if (!file) std::fprintf(stderr, "warning: the trace %s could not be written\n", path.c_str());
}
