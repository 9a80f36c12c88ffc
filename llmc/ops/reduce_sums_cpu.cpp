// Order-free sums on the CPU. Threads add what they find in any order: integer sums do not care.
#include "llmc/ops/reduce_sums.h"

#include <algorithm>
#include <cmath>

#include "llmc/core/phase.h"
#include "llmc/core/round.h"
#include "llmc/ops/fixed_sum_format.h"

void fixed_sum_add(FixedSum& sum, double x) {
    limbs_add(sum, x);
}

void fixed_sum_add(FixedSum& sum, const FixedSum& other) {
    sum.hi += other.hi;
    sum.mid += other.mid;
    sum.lo += other.lo;
    sum.bad += other.bad;
    limbs_normalise(sum);
}

double fixed_sum_value(const FixedSum& sum) {
    return limbs_value(sum);
}

void sum_of_squares(FixedSum* sum, const float* x, size_t n, CpuStream) {
    const PhaseTimer timer(Phase::Optimizer);
    const int64_t chunks = int64_t(ceil_div(n, size_t(kSumChunk)));
#pragma omp parallel
    {
        FixedSum mine;
#pragma omp for schedule(static)
        for (int64_t k = 0; k < chunks; k++) {
            const float* from = x + k * kSumChunk;
            const int count = int(std::min<size_t>(kSumChunk, n - size_t(k) * kSumChunk));
            // Eight lanes, then the lanes in order: the same sum on every machine.
            double lanes[8] = {};
            if (count == kSumChunk) {
                for (int i = 0; i < kSumChunk; i += 8)
                    for (int j = 0; j < 8; j++) lanes[j] += double(from[i + j]) * from[i + j];
            } else {
                for (int i = 0; i < count; i++) lanes[i % 8] += double(from[i]) * from[i];
            }
            double total = 0;
            for (double lane : lanes) total += lane;
            fixed_sum_add(mine, total);
        }
#pragma omp critical
        fixed_sum_add(*sum, mine);
    }
}

void sum_of_elements(FixedSum* sum, const float* x, size_t n, CpuStream) {
    for (size_t i = 0; i < n; i++) fixed_sum_add(*sum, double(x[i]));
}

void accumulate_fixed(int64_t* acc, float* x, float limit, int* bad, size_t n, CpuStream) {
    const PhaseTimer timer(Phase::Optimizer);
    int found = 0;
#pragma omp parallel for simd schedule(static) reduction(| : found)
    for (size_t i = 0; i < n; i++) {
        const bool good = std::fabs(x[i]) < limit;  // false for NaN
        acc[i] += int64_t(std::rint(good ? double(x[i]) * kGradScale : 0.));
        found |= !good;
        x[i] = 0.f;
    }
    if (found) *bad = 1;
}

void accumulate_float(float* acc, float* x, size_t n, CpuStream) {
    const PhaseTimer timer(Phase::Optimizer);
#pragma omp parallel for simd schedule(static)
    for (size_t i = 0; i < n; i++) acc[i] += x[i], x[i] = 0.f;
}

void fixed_to_float(float* x, const int64_t* acc, size_t n, CpuStream) {
    const PhaseTimer timer(Phase::Optimizer);
#pragma omp parallel for simd schedule(static)
    for (size_t i = 0; i < n; i++) x[i] = float(acc[i]) * float(1 / kGradScale);
}
