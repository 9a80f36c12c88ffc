#include "llmc/train/run_state.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "llmc/core/check.h"
#include "llmc/core/plural.h"
#include "llmc/io/json_integer.h"

nlohmann::json run_state_to_json(const RunState& s) {
    return {{"step", s.step},
            {"samples", s.samples},
            {"updates", s.updates},
            {"skipped", s.skipped},
            {"skipped_in_row", s.skipped_in_row},
            {"boundary_done", s.boundary_done},
            {"loss_window", s.loss_spikes.window()},
            {"norm_window", s.norm_spikes.window()}};
}

RunState run_state_from_json(const nlohmann::json& json) {
    RunState s;
    try {
        for (auto [key, field] : {std::pair("step", &s.step),
                                  {"samples", &s.samples},
                                  {"updates", &s.updates},
                                  {"skipped", &s.skipped},
                                  {"skipped_in_row", &s.skipped_in_row}}) {
            CHECK(json_is_integer(json.at(key)), Exit::Damaged,
                  str("the checkpoint's run state: bad '", key, "'"), json.at(key).dump(),
                  "0 or more");
            *field = json.at(key).get<int64_t>();
        }
        s.boundary_done = json.at("boundary_done").get<bool>();
        for (auto [key, detector] :
             {std::pair("loss_window", &s.loss_spikes), {"norm_window", &s.norm_spikes}}) {
            auto window = json.at(key).get<std::deque<float>>();
            CHECK(window.size() <= SpikeDetector::kWindow, Exit::Damaged,
                  str("the checkpoint's run state: '", key, "' is too long"), str(window.size()),
                  str("at most ", SpikeDetector::kWindow));
            for (float x : window)
                CHECK(std::isfinite(x), Exit::Damaged,
                      str("the checkpoint's run state: '", key,
                          "' holds a value that is not finite"));
            detector->restore(std::move(window));
        }
    } catch (const nlohmann::json::exception& e) {
        fail(Exit::Damaged, "the checkpoint's run state cannot be read", e.what());
    }
    CHECK(s.updates + s.skipped == s.step, Exit::Damaged,
          "the checkpoint's run state does not add up",
          str("updates ", s.updates, ", skipped ", s.skipped, ", step ", s.step),
          "updates + skipped == step");
    return s;
}

Verdict step_verdict(const RunState& state, const Options& opt, float loss, float norm) {
    Verdict v;
    if (!std::isfinite(loss) || !std::isfinite(norm)) {
        v.reason = "non-finite";
    } else {
        v.loss_z = state.loss_spikes.z_score(loss);
        v.norm_z = state.norm_spikes.z_score(norm);
        if ((opt.loss_spike_z > 0 && v.loss_z > opt.loss_spike_z) ||
            (opt.norm_spike_z > 0 && v.norm_z > opt.norm_spike_z))
            v.reason = "spike";
    }
    v.apply = v.reason.empty();
    return v;
}

Verdict step_judge(RunState& state, const Options& opt, float loss, float norm) {
    const Verdict v = step_verdict(state, opt, loss, norm);
    if (v.apply) {
        state.loss_spikes.accept(loss);
        state.norm_spikes.accept(norm);
        state.updates++;
        state.skipped_in_row = 0;
    } else {
        state.skipped++;
        state.skipped_in_row++;
    }
    state.step++;
    return v;
}

void check_skipped(const RunState& state, const Options& opt, const Verdict& last) {
    CHECK(
        state.skipped_in_row < opt.max_skipped, Exit::NonFinite,
        str("step ", state.step, ": ", counted(state.skipped_in_row, "step"), " skipped in a row"),
        last.reason, str("fewer than --max-skipped ", opt.max_skipped),
        last.reason == "spike"
            ? "a smaller --lr, or a larger --loss-spike-z / --norm-spike-z"
            : "a smaller --lr or a longer --warmup-steps; the last checkpoint is safe");
}
