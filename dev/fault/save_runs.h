// dev/fault/save_runs.h: a small run that saves, under faults, and the verdict on what it left.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "dev/fault/fault.h"
#include "dev/fault/power_loss.h"

// What a run of the child process reported before it ended, or was ended.
struct RunReport {
    bool killed = false;
    bool crashed = false;  // ended by anything else than the plan's kill or its own return
    int calls = 0;         // counted calls, if it was not killed
    std::string error;     // that stopped it, if one did
    int64_t resumed = -1;  // the step it found
    std::map<int64_t, std::string> saved;    // acknowledged: step -> state
    std::map<int64_t, std::string> refused;  // reported as failed: step -> reason
    std::vector<std::string> complaints;     // saved, but tidying up failed
    int leaked = 0;                          // descriptors open at the end but not at the start
};

// In a process of its own, under `plan`: takes the lock of `out`, resumes from what is there,
// saves steps first..last with `keep`.
RunReport run_saves(const FaultPlan& plan, const std::string& out, int64_t first, int64_t last,
                    int keep = 2);

// The state that step's save must have.
std::string state_of(int64_t step);

// What is wrong with the checkpoints in `out`, as the next start sees them; empty if nothing:
//   the lock can be taken, a checkpoint of a step in `allowed` is found and is its step's state
//   (none at all only if `allowed` contains -1), every directory with a final name is whole,
//   `latest` is missing or names a whole one.
std::string judge_directory(const std::string& out, const std::vector<int64_t>& allowed);

// What is wrong with a directory in which steps first..last were saved without faults.
std::string judge_clean_end(const RunReport& report, const std::string& out, int64_t first,
                            int64_t last, int keep);

// Builds the states that a power loss may leave at any moment of the logged run, or only at its
// end, and judges each.
struct PowerLossResult {
    std::string wrong;  // the first state that is not as it must be, or empty
    int64_t states = 0, distinct = 0;
};
PowerLossResult judge_power_loss(const std::vector<FaultRecord>& log, const std::string& out,
                                 const std::string& scratch, int random_subsets,
                                 bool only_at_end = false);
