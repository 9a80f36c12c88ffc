#include "llmc/core/host.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>

std::string host_name() {
    char name[256] = "localhost";
    ::gethostname(name, sizeof name - 1);
    return name;
}

CoreMask cores_mask(int pid) {
    cpu_set_t set;
    CoreMask mask{};
    static_assert(sizeof set == sizeof mask, "1024 cores");
    if (::sched_getaffinity(pid, sizeof set, &set) == 0) std::memcpy(&mask, &set, sizeof mask);
    return mask;
}

int cores_given() {
    int n = 0;
    for (uint64_t word : cores_mask()) n += std::popcount(word);
    return std::max(n, 1);
}

int cores_online() {
    return int(::sysconf(_SC_NPROCESSORS_ONLN));
}
