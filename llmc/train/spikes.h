// llmc/train/spikes.h: does this loss or gradient norm stand out from the recent ones?
//
// Robust z-score: z = 0.6745 (x - median) / MAD over the last kWindow accepted values, where MAD is
// the median absolute deviation (Iglewicz, Hoaglin 1993, section 3). Values that were not accepted
// (spikes, non-finite ones) never enter the window, so one NaN cannot blind the detector. Its whole
// state is the window, which travels in the checkpoint.
#pragma once
#include <deque>

class SpikeDetector {
  public:
    static constexpr int kWindow = 128;  // values remembered
    static constexpr int kWarmUp = 32;   // no verdict before so many

    // Infinite for a value that is not finite; 0 while warming up or where the window is constant
    // and x equals it.
    double z_score(float x) const;
    void accept(float x);

    const std::deque<float>& window() const { return window_; }
    void restore(std::deque<float> window) { window_ = std::move(window); }

  private:
    std::deque<float> window_;
};
