// llmc/ops/fixed_sum_format.h: the limbs of reduce_sums.h, whose units are 2^20, 2^-30 and 2^-80;
// the same code on CPU and GPU.
#pragma once
#include <cmath>
#include <cstdint>

#include "llmc/core/host_device.h"
#include "llmc/ops/reduce_sums.h"

constexpr int kLimbBits = 50;
constexpr int64_t kLimb = int64_t(1) << kLimbBits;

// Moves what exceeds a limb to the next one. The shift is arithmetic: it rounds down, so what stays
// is in [0, 2^50).
HOST_DEVICE void limbs_normalise(FixedSum& sum) {
    sum.mid += sum.lo >> kLimbBits;
    sum.lo &= kLimb - 1;
    sum.hi += sum.mid >> kLimbBits;
    sum.mid &= kLimb - 1;
    // One rank's part of the range: 8192 of these still fit 64 bits.
    if (sum.hi >= kLimb || sum.hi < -kLimb) sum.bad++, sum.hi = 0;
}

HOST_DEVICE void limbs_add(FixedSum& sum, double x) {
    const double magnitude = fabs(x);
    if (!(magnitude < 0x1p64)) {
        sum.bad++;
        return;
    }
    // Cut the magnitude into limbs; each difference is exact, only the last limb is rounded.
    const double hi = trunc(magnitude * 0x1p-20), rest = magnitude - hi * 0x1p20;
    const double mid = trunc(rest * 0x1p30), last = rest - mid * 0x1p-30;
    const double lo = rint(last * 0x1p80);
    const int64_t sign = x < 0 ? -1 : 1;
    sum.hi += sign * int64_t(hi);
    sum.mid += sign * int64_t(mid);
    sum.lo += sign * int64_t(lo);
    limbs_normalise(sum);
}

// The words of many ranks may have been added, so the limbs are not normal; the products are exact.
HOST_DEVICE double limbs_value(FixedSum s) {
    s.mid += s.lo >> kLimbBits;
    s.hi += s.mid >> kLimbBits;
    if (s.bad > 0 || s.hi >= kLimb || s.hi < -kLimb) return nan("");
    return double(s.hi) * 0x1p20 + double(s.mid & (kLimb - 1)) * 0x1p-30 +
           double(s.lo & (kLimb - 1)) * 0x1p-80;
}
