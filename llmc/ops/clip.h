// llmc/ops/clip.h: what a step makes of its gradient, decided where the sums lie: the host need not
// wait for the device to know the norm before it queues the update.
//   norm  = sqrt(squares), NaN where a sum is bad or an addend was out of range
//   scale = min(1, most / norm), 1 for most = 0; 0, a skipped update, where norm or loss is not
//   finite
// Pascanu, Mikolov, Bengio 2013, arXiv:1211.5063, algorithm 1.
// Definition: clip_cpu.cpp.  Fast: clip.cu.  Proof: clip_test.cpp, clip_cuda_test.cu.
#pragma once
#include "llmc/ops/reduce_sums.h"

void gradient_clip(float* scale,             // (1)  =
                   float* norm,              // (1)  =
                   const FixedSum* squares,  // (1)  over all ranks, as is the loss
                   const FixedSum* loss,     // (1)
                   int* out_of_range,        // (1)  not 0: an addend did not fit; set to 0
                   double most, CpuStream s);
void gradient_clip(float* scale, float* norm, const FixedSum* squares, const FixedSum* loss,
                   int* out_of_range, double most, CudaStream s);
