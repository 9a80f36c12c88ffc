// llmc/train/schedule.h: the learning rate of a step.
//
// With S = --steps, W = --warmup-steps, f = --min-lr-frac, and step s = 0 .. S-1:
//   s < W       lr (s+1) / W                            the first step is not wasted on 0
//   else, t = (s-W) / (S-W), so 0 <= t < 1:
//   cosine      lr (f + (1-f) (1 + cos(pi t)) / 2)      Loshchilov, Hutter 2017, arXiv:1608.03983
//   linear      lr (f + (1-f) (1 - t))
//   constant    lr
//   wsd         lr until the last fifth of the steps, D = max(W, S - S/5), then with
//               u = (s-D) / (S-D):  lr (f + (1-f) (1 - sqrt(u)))
//               warm-up, stable, decay: Haegele et al. 2024, arXiv:2405.18392, section 4
// lr f would be reached at step S, which is not run.
#pragma once
#include "llmc/train/options.h"

float learning_rate(const Options& opt, int step);
