// dev/sim: twins of the wrappers in llmc/core/tensorop.cuh, as warp collectives.
// The memory accesses are made here, inline in the kernel's own code, by the lane that owns them,
// so that sanitizers and trace mode see them; the runtime only moves the registers.
#pragma once
#include "cusim/device.h"

namespace cusim {
void mma_m16n8k16_bf16(float* d, const uint32_t* a, const uint32_t* b, Where at);
// Distributes the lanes' 16-byte rows over the warp: n matrices of 8x8 16-bit elements.
void ldmatrix(uint32_t* r, const uint32_t* row, int n, bool transpose, Where at);

void copy_issue(void* dst, const void* src, bool valid, Where at);
void copy_commit();
struct Copy {
    void* dst;
    const void* src;
    bool valid;
};
// The next copy that becomes visible when at most `pending` groups may stay in flight.
bool copy_next(int pending, Copy* copy);

CUSIM_ACCESS void ldmatrix_rows(uint32_t* r, const void* row, int n, bool transpose, Where at) {
    uint4 v{};
    if (int(lane_id()) < 8 * n) {
        check_aligned(row, 16, "ldmatrix row");
        trace(row, 16, Access::Load);
        v = *static_cast<const uint4*>(row);
    }
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
    ldmatrix(r, words, n, transpose, at);
}
}  // namespace cusim

CUSIM_INLINE void mma_m16n8k16_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                                    CUSIM_AT) {
    cusim::mma_m16n8k16_bf16(d, a, b, at);
}
CUSIM_INLINE void ldmatrix_x4(uint32_t (&r)[4], const void* row, CUSIM_AT) {
    cusim::ldmatrix_rows(r, row, 4, false, at);
}
CUSIM_INLINE void ldmatrix_x4_trans(uint32_t (&r)[4], const void* row, CUSIM_AT) {
    cusim::ldmatrix_rows(r, row, 4, true, at);
}
CUSIM_INLINE void ldmatrix_x2(uint32_t (&r)[2], const void* row, CUSIM_AT) {
    cusim::ldmatrix_rows(r, row, 2, false, at);
}
CUSIM_INLINE void ldmatrix_x2_trans(uint32_t (&r)[2], const void* row, CUSIM_AT) {
    cusim::ldmatrix_rows(r, row, 2, true, at);
}

// From the issue on the target holds garbage (NaN in every float format), so a copy that starts too
// early destroys what others still read; the data lands at the wait, so a missing wait reads NaN.
CUSIM_ACCESS void cp_async_16(void* dst, const void* src, bool valid = true, CUSIM_AT) {
    cusim::check_aligned(dst, 16, "cp.async target");
    cusim::check_aligned(src, 16, "cp.async source");
    if (valid) {
        cusim::trace(src, 16, cusim::Access::Load);
        const uint4 probe =
            *static_cast<const uint4*>(src);  // an invalid source shows at the issue
        asm volatile("" ::"m"(probe));
    }
    cusim::trace(dst, 16, cusim::Access::CopyIssue);
    *static_cast<uint4*>(dst) = {~0u, ~0u, ~0u, ~0u};
    cusim::copy_issue(dst, src, valid, at);
}
inline void cp_async_commit() {
    cusim::copy_commit();
}
template <int pending>
CUSIM_ACCESS void cp_async_wait_group() {
    cusim::Copy copy;
    while (cusim::copy_next(pending, &copy)) {
        cusim::trace(copy.dst, 16, cusim::Access::CopyLanding);
        *static_cast<uint4*>(copy.dst) =
            copy.valid ? *static_cast<const uint4*>(copy.src) : uint4{};
    }
}
