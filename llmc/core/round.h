// llmc/core/round.h: division and multiples, rounded up, for n >= 0 and d > 0; on host and GPU.
#pragma once
#include "llmc/core/host_device.h"

template <class N, class D>
HOST_DEVICE constexpr auto ceil_div(N n, D d) {
    return (n + d - 1) / d;
}
template <class N, class D>
HOST_DEVICE constexpr auto round_up(N n, D d) {
    return ceil_div(n, d) * d;
}
