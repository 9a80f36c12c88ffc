// llmc/train/schedule.cpp: the equations of schedule.h.
#include "llmc/train/schedule.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numbers>

float learning_rate(const Options& opt, int step) {
    const int S = opt.steps, W = opt.warmup_steps;
    assert(W >= 0 && "options_derive() comes first");
    if (step < W) return float(opt.lr * (step + 1) / W);

    const auto fall = [&](double rest) {  // rest: 1 at the peak, 0 at the floor
        return float(opt.lr * (opt.min_lr_frac + (1 - opt.min_lr_frac) * rest));
    };
    const double t = double(step - W) / (S - W);
    switch (opt.schedule) {
        case Schedule::Cosine:
            return fall(0.5 * (1 + std::cos(std::numbers::pi * t)));
        case Schedule::Linear:
            return fall(1 - t);
        case Schedule::Constant:
            return float(opt.lr);
        case Schedule::Wsd:
            break;
    }
    const int D = std::max(W, S - S / 5);
    if (step < D) return float(opt.lr);
    return fall(1 - std::sqrt(double(step - D) / (S - D)));
}
