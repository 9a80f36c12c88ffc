#include "llmc/parallel/liveness.h"

#include <atomic>

#include "llmc/parallel/comm_behind.h"

namespace {
std::atomic<double> of_run{0}, behind_run{0};
std::atomic<int64_t> count{0};
}  // namespace

void liveness_mark() {
    if (comm_is_behind()) {
        behind_run = comm_clock();
        return;
    }
    of_run = comm_clock();
    count++;
}

double liveness_last() {
    return of_run;
}
int64_t liveness_count() {
    return count;
}
double liveness_last_behind() {
    return behind_run;
}
