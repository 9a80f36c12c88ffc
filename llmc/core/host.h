// llmc/core/host.h: the machine that this process runs on.
#pragma once
#include <array>
#include <cstdint>
#include <string>

std::string host_name();

// A bit for each core that a process may run on; all 0 if the system does not say.
using CoreMask = std::array<uint64_t, 16>;
CoreMask cores_mask(int pid = 0);  // 0: this one
int cores_given();                 // their number, at least 1
int cores_online();                // of the machine
