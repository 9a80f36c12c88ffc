// make sim-report: prints the cost table. An argument restricts it to ops whose name contains it,
// and then the lines of their kernels follow.
#include <cstdio>

#include "cost_model.h"

int main(int argc, char** argv) {
    if (!cusim::counters_available()) {
        fprintf(stderr, "counts exist in SIM_MODE=trace only: make sim-report\n");
        return 2;
    }
    const std::vector<Cost> costs = measure_costs(argc > 1 ? argv[1] : "");
    printf("%-28s %-5s %9s %8s %9s %8s %9s\n", "op", "type", "MB moved", "/ least", "requested",
           "sectors", "conflicts");
    printf("%-28s %-5s %9s %8s %9s %8s %9s\n", "", "", "", "", "/ least", "used", "/ access");
    for (const Cost& c : costs) {
        const cusim::KernelCounters& k = c.counted;
        const double requested = double(k.read_requested + k.written_requested);
        printf("%-28s %-5s %9.3f ", c.op.c_str(), c.type.c_str(), double(k.moved()) / 1e6);
        if (c.memory_bound)
            printf("%8.3f %9.3f ", c.moved_over_least(), requested / c.least);
        else
            printf("%8s %9s ", "-", "-");
        printf("%7.1f%% ", 100 * k.sector_efficiency());
        if (k.shared_accesses)
            printf("%9.3f\n", k.conflicts_per_access());
        else
            printf("%9s\n", "-");
    }
    if (argc > 1) fputs(cusim::counters_by_line("").c_str(), stdout);
    return 0;
}
