#include "llmc/train/spikes.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

static double median(std::vector<double> x) {
    const size_t half = x.size() / 2;
    std::nth_element(x.begin(), x.begin() + half, x.end());
    if (x.size() % 2) return x[half];
    return (x[half] + *std::max_element(x.begin(), x.begin() + half)) / 2;
}

double SpikeDetector::z_score(float x) const {
    const double infinity = std::numeric_limits<double>::infinity();
    if (!std::isfinite(x)) return infinity;
    if (int(window_.size()) < kWarmUp) return 0;
    std::vector<double> values(window_.begin(), window_.end());
    const double middle = median(values);
    for (double& v : values) v = std::abs(v - middle);
    const double distance = x - middle, mad = median(values);
    if (mad == 0) return distance == 0 ? 0 : std::copysign(infinity, distance);
    return 0.6745 * distance / mad;
}

void SpikeDetector::accept(float x) {
    window_.push_back(x);
    if (int(window_.size()) > kWindow) window_.pop_front();
}
