#include "llmc/core/host.h"

#include <sched.h>
#include <unistd.h>

std::string host_name() {
    char name[256] = "localhost";
    ::gethostname(name, sizeof name - 1);
    return name;
}

int cores_given() {
    cpu_set_t set;
    return ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

int cores_online() {
    return int(::sysconf(_SC_NPROCESSORS_ONLN));
}
