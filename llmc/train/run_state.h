// llmc/train/run_state.h: what a run remembers besides tensors, and what becomes of a step.
//
// All of it travels in the checkpoint, so a resumed run decides as the uninterrupted one would.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "llmc/train/options.h"
#include "llmc/train/spikes.h"

struct RunState {
    int64_t step = 0;            // steps behind us, skipped ones included
    int64_t samples = 0;         // samples consumed: the data cursor
    int64_t updates = 0;         // steps that changed the weights (AdamW's t)
    int64_t skipped = 0;         // steps that did not
    int64_t skipped_in_row = 0;  // ... since the last one that did
    bool boundary_done = false;  // validation and sampling of this step are behind us
    SpikeDetector loss_spikes, norm_spikes;
};
nlohmann::json run_state_to_json(const RunState& state);
// Throws Error(Damaged) where a field is missing or impossible.
RunState run_state_from_json(const nlohmann::json& json);

// Whether the gradient of a step may reach the weights.
struct Verdict {
    bool apply = true;
    std::string reason;  // of a skip: "non-finite" or "spike"
    double loss_z = 0, norm_z = 0;
};

// A non-finite loss or norm, or a z-score above --loss-spike-z or --norm-spike-z, skips the step.
Verdict step_verdict(const RunState& state, const Options& opt, float loss, float norm);

// The same, once a step: counts into state, and values that were applied enter the statistics.
Verdict step_judge(RunState& state, const Options& opt, float loss, float norm);

// Are outliers looked for? Then the update has to wait until the host has judged loss and norm;
// what is not finite is skipped without it (llmc/ops/clip.h).
inline bool watches_spikes(const Options& opt) {
    return opt.loss_spike_z > 0 || opt.norm_spike_z > 0;
}

// Throws Error(NonFinite) when --max-skipped steps in a row were skipped.
void check_skipped(const RunState& state, const Options& opt, const Verdict& last);
