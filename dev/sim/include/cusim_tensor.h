// cusim_tensor.h - simulator side of llmc/tensorop.cuh: mma, ldmatrix, cp.async as warp collectives.
// The memory accesses are made here, in code that the sanitizers instrument, by the lane that owns them.
#pragma once
#include "cusim.h"
namespace cusim { bool cp_pop(int keep, void **dst, const void **src, int *valid); }
inline void mma_m16n8k16_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], CUSIM_AT) { cusim::mma_m16n8k16(d, a, b, CUSIM_HERE); }
namespace cusim {
CUSIM_WRAP void ldm(uint32_t *r, const void *row, int n, bool trans, const char *file, int line) {
  uint4 v{};
  if (int(lane_id()) < 8 * n) {
    if (uintptr_t(row) % 16) fail("ldmatrix at %s:%d: row address %p is not 16-byte aligned", file, line, row);
    touch(row, 16, false); v = *static_cast<const uint4 *>(row);
  }
  uint32_t w[4] = {v.x, v.y, v.z, v.w}; ldmatrix(r, w, n, trans, file, line);
}
}  // namespace cusim
inline void ldmatrix_x4(uint32_t (&r)[4], const void *row, CUSIM_AT) { cusim::ldm(r, row, 4, false, CUSIM_HERE); }
inline void ldmatrix_x4_trans(uint32_t (&r)[4], const void *row, CUSIM_AT) { cusim::ldm(r, row, 4, true, CUSIM_HERE); }
inline void ldmatrix_x2(uint32_t (&r)[2], const void *row, CUSIM_AT) { cusim::ldm(r, row, 2, false, CUSIM_HERE); }
inline void ldmatrix_x2_trans(uint32_t (&r)[2], const void *row, CUSIM_AT) { cusim::ldm(r, row, 2, true, CUSIM_HERE); }
// The target holds garbage from the issue on (an early landing overwrites readers of the old tile) and
// the data only after the wait (a missing wait reads NaN); zero fill when !valid.
CUSIM_WRAP void cp_async_16(void *dst, const void *src, bool valid = true, CUSIM_AT) {
  if ((uintptr_t(dst) | uintptr_t(src)) % 16) cusim::fail("cp.async at %s:%d: misaligned (%p <- %p)", CUSIM_HERE, dst, src);
  if (valid) { cusim::touch(src, 16, false); uint4 probe = *static_cast<const uint4 *>(src); asm volatile("" ::"m"(probe)); }
  cusim::touch(dst, 16, true); *static_cast<uint4 *>(dst) = {~0u, ~0u, ~0u, ~0u};
  cusim::cp_async(dst, src, 16, valid ? 16 : 0, CUSIM_HERE);
}
inline void cp_async_commit() { cusim::cp_commit(); }
template <int N> CUSIM_WRAP void cp_async_wait_group() {
  void *d; const void *s; int n;                                    // the copy was counted at its issue, the landing is for the race checkers
  while (cusim::cp_pop(N, &d, &s, &n)) { cusim::touch(d, 16 | 1 << 16, true); *static_cast<uint4 *>(d) = n ? *static_cast<const uint4 *>(s) : uint4{}; }
}
// ---- Hopper: mbarrier and 1-D bulk copies (the landing is as late as possible: when nothing else can run)
namespace cusim { void mbar_init(uint64_t *, int), mbar_arrive(uint64_t *, int bytes), mbar_wait(uint64_t *, int parity), bulk_load(void *, const void *, unsigned, uint64_t *); }
inline void mbar_init(uint64_t *bar, int count) { cusim::mbar_init(bar, count); }
inline void mbar_arrive(uint64_t *bar) { cusim::mbar_arrive(bar, 0); }
inline void mbar_arrive_expect_tx(uint64_t *bar, unsigned bytes) { cusim::mbar_arrive(bar, int(bytes)); }
inline void mbar_wait(uint64_t *bar, int parity) { cusim::mbar_wait(bar, parity); }
CUSIM_WRAP void bulk_load(void *dst, const void *src, unsigned bytes, uint64_t *bar, CUSIM_AT) {
  if ((uintptr_t(dst) | uintptr_t(src) | bytes) % 16) cusim::fail("cp.async.bulk at %s:%d: addresses and size must be multiples of 16", CUSIM_HERE);
  for (unsigned i = 0; i < bytes; i += 16) { cusim::touch((const char *)src + i, 16, false); cusim::touch((char *)dst + i, 16, true); uint4 probe = *(const uint4 *)((const char *)src + i); asm volatile("" ::"m"(probe)); *(uint4 *)((char *)dst + i) = {~0u, ~0u, ~0u, ~0u}; }
  cusim::bulk_load(dst, src, bytes, bar);
}
inline void fence_mbar_init() {}
