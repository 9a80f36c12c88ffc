// make sim-report: prints the cost table. An argument restricts it to ops whose name contains it,
// and then the lines of their kernels follow.
#include <cstdio>

#include "cost_model.h"

int main(int argc, char** argv) {
    if (!cusim::counters_available()) {
        fprintf(stderr, "counts exist in SIM_MODE=trace only: make sim-report\n");
        return 2;
    }
    const std::vector<Cost> costs = measure_costs(argc > 1 ? argv[1] : "", 768);
    printf(
        "| %-28s | %-4s | MB moved | moved / least | requested / least | sectors used | "
        "conflicts / access |\n|---|---|---|---|---|---|---|\n",
        "op", "type");
    std::string notes;
    for (const Cost& c : costs) {
        const cusim::KernelCounters& k = c.counted;
        printf("| %-28s | %-4s | %8.3f | %12.3f%c | %17.3f | %11.1f%% | %18.3f |\n", c.op.c_str(),
               c.type.c_str(), double(k.moved()) / 1e6, c.moved_over_least(),
               c.goal.why.empty() ? ' ' : '*',
               double(k.read_requested + k.written_requested) / c.least,
               100 * k.sector_efficiency(), k.conflicts_per_access());
        if (!c.goal.why.empty()) notes += "\n- " + c.op + " " + c.type + ": " + c.goal.why;
    }
    if (!notes.empty()) printf("\nMarked *:\n%s\n", notes.c_str());
    if (argc > 1) printf("\n%s", cusim::counters_by_line("").c_str());
    return 0;
}
