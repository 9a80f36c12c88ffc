// llmc/core/host.h: the machine that this process runs on.
#pragma once
#include <string>

std::string host_name();

int cores_given();   // that this process may run on; 1 if the system does not say
int cores_online();  // of the machine
// Has whoever started this process bound it to some of the cores?
inline bool cores_bound() {
    return cores_given() < cores_online();
}
