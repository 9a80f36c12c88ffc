// Where trace mode's counts are kept, and the tables made of them.
#include "counters.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "symbols.h"
#include "trace.h"

namespace cusim {

CounterStore& counter_store() {
    static auto* const store = new CounterStore;
    return *store;
}

void KernelCounters::add(const KernelCounters& o) {
    launches += o.launches;
    blocks += o.blocks;
    read_moved += o.read_moved;
    written_moved += o.written_moved;
    read_requested += o.read_requested;
    written_requested += o.written_requested;
    requests += o.requests;
    sectors += o.sectors;
    ideal_sectors += o.ideal_sectors;
    shared_accesses += o.shared_accesses;
    wavefronts += o.wavefronts;
    ideal_wavefronts += o.ideal_wavefronts;
}

bool counters_available() {
    return kTrace;
}
void counters_reset() {
    counter_store().kernels.clear();
}
int trace_reports() {
    return counter_store().reports;
}

std::vector<KernelCounters> counters() {
    std::vector<KernelCounters> all;
    for (const auto& [kernel, record] : counter_store().kernels) {
        all.push_back(record.total);
        all.back().kernel = kernel_info(kernel).name;
    }
    return all;
}
KernelCounters counters_total() {
    KernelCounters sum;
    for (const auto& [kernel, record] : counter_store().kernels) sum.add(record.total);
    return sum;
}

std::string counters_by_line(const std::string& kernel) {
    std::string out;
    for (const auto& [id, record] : counter_store().kernels) {
        if (kernel_info(id).name.find(kernel) == std::string::npos) continue;
        std::vector<uintptr_t> code;
        for (const auto& [key, line] : record.lines) code.push_back(key.first);
        const std::vector<std::string> places = source_lines(code);
        size_t i = 0;
        for (const auto& [key, l] : record.lines) {
            char text[256];
            snprintf(text, sizeof text,
                     "  %-28s %s %-5s %2d B, %8lu requests of %4.1f lanes, %s/request %5.2f (ideal "
                     "%5.2f)\n",
                     places[i++].c_str(), l.shared ? "shared" : "global",
                     l.store ? "store" : "load", l.bytes, (unsigned long)l.requests,
                     double(l.lanes) / double(l.requests), l.shared ? "wavefronts" : "sectors",
                     double(l.units) / double(l.requests),
                     double(l.ideal_units) / double(l.requests));
            out += text;
        }
    }
    return out;
}

}  // namespace cusim
