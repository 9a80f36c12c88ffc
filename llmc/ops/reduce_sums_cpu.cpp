// Order-free sums on the CPU. Threads add what they find in any order: integer sums do not care.
#include "llmc/ops/reduce_sums.h"

#include <algorithm>
#include <cmath>

#include "llmc/core/phase.h"

constexpr int kLimbBits = 50;
constexpr int64_t kLimb = int64_t(1) << kLimbBits;

// Moves what exceeds a limb to the next one. The shift is arithmetic: it rounds down, so what stays
// is in [0, 2^50).
static void normalise(FixedSum& sum) {
    sum.mid += sum.lo >> kLimbBits;
    sum.lo &= kLimb - 1;
    sum.hi += sum.mid >> kLimbBits;
    sum.mid &= kLimb - 1;
    // One rank's part of the range: 8192 of these still fit 64 bits.
    if (sum.hi >= kLimb || sum.hi < -kLimb) sum.bad++, sum.hi = 0;
}

void fixed_sum_add(FixedSum& sum, double x) {
    const double magnitude = std::fabs(x);
    if (!(magnitude < 0x1p64)) {
        sum.bad++;
        return;
    }
    // Cut the magnitude into limbs; each difference is exact, only the last limb is rounded.
    const double hi = std::trunc(magnitude * 0x1p-20), rest = magnitude - hi * 0x1p20;
    const double mid = std::trunc(rest * 0x1p30), last = rest - mid * 0x1p-30;
    const double lo = std::rint(last * 0x1p80);
    const int64_t sign = x < 0 ? -1 : 1;
    sum.hi += sign * int64_t(hi);
    sum.mid += sign * int64_t(mid);
    sum.lo += sign * int64_t(lo);
    normalise(sum);
}

void fixed_sum_add(FixedSum& sum, const FixedSum& other) {
    sum.hi += other.hi;
    sum.mid += other.mid;
    sum.lo += other.lo;
    sum.bad += other.bad;
    normalise(sum);
}

double fixed_sum_value(const FixedSum& sum) {
    if (sum.bad > 0) return std::nan("");
    FixedSum s = sum;
    s.mid += s.lo >> kLimbBits;
    s.hi += s.mid >> kLimbBits;
    return std::ldexp(double(s.hi), 20) + std::ldexp(double(s.mid & (kLimb - 1)), -30) +
           std::ldexp(double(s.lo & (kLimb - 1)), -80);
}

void sum_of_squares(FixedSum* sum, const float* x, size_t n, CpuStream) {
    const PhaseTimer timer(Phase::Optimizer);
    const int64_t chunks = int64_t((n + kSumChunk - 1) / kSumChunk);
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

void accumulate_fixed(int64_t* acc, float* x, int* bad, size_t n, CpuStream) {
    const PhaseTimer timer(Phase::Optimizer);
    int found = 0;
#pragma omp parallel for simd schedule(static) reduction(| : found)
    for (size_t i = 0; i < n; i++) {
        const bool good = std::fabs(x[i]) < kGradLimit;  // false for NaN
        const double scaled = good ? double(x[i]) * kGradScale : 0.;
        const int64_t sum = acc[i] + int64_t(std::rint(scaled));
        // Both addends are below kGradFull, so this is seen before anything wraps.
        found |= !good || sum >= kGradFull || sum <= -kGradFull;
        acc[i] = sum;
        x[i] = 0.f;
    }
    if (found) *bad = 1;
}

void accumulate_float(float* acc, float* x, size_t n, CpuStream) {
    const PhaseTimer timer(Phase::Optimizer);
#pragma omp parallel for simd schedule(static)
    for (size_t i = 0; i < n; i++) acc[i] += x[i], x[i] = 0.f;
}

void fixed_check(const int64_t* acc, int ranks, int* bad, size_t n, CpuStream) {
    const PhaseTimer timer(Phase::Optimizer);
    const int64_t full = kGradFull / ranks;
    int found = 0;
#pragma omp parallel for simd schedule(static) reduction(| : found)
    for (size_t i = 0; i < n; i++) found |= acc[i] >= full || acc[i] <= -full;
    if (found) *bad = 1;
}

void fixed_to_float(float* x, const int64_t* acc, size_t n, CpuStream) {
    const PhaseTimer timer(Phase::Optimizer);
#pragma omp parallel for simd schedule(static)
    for (size_t i = 0; i < n; i++) x[i] = float(acc[i]) * float(1 / kGradScale);
}
