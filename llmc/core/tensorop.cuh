// llmc/core/tensorop.cuh: tensor-core and asynchronous-copy instructions of sm_80 and later.
//
// The only file with inline PTX. Each wrapper has a twin of the same name and arguments in the
// simulator: dev/sim/include/cusim/tensor.h.
// Fragment layouts: NVIDIA, PTX ISA 8.5, section 9.7.14 (mma.m16n8k16 and ldmatrix).
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#ifdef CUSIM
#include <cusim/tensor.h>
#else

// d (16x8 fp32) += a (16x16 bf16, row-major) * b (16x8 bf16, column-major).
// Lane l, with g = l / 4 and t = 2 * (l % 4), holds two neighbouring bf16 in each register:
//   a[0] (g, t)  a[1] (g+8, t)  a[2] (g, t+8)  a[3] (g+8, t+8);   b[0] (t, g)  b[1] (t+8, g)
//   d[0] (g, t)  d[1] (g, t+1)  d[2] (g+8, t)  d[3] (g+8, t+1)
__device__ __forceinline__ void mma_m16n8k16_bf16(float (&d)[4], const uint32_t (&a)[4],
                                                  const uint32_t (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ uint32_t smem_address(const void* p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// Loads 4 (x4) or 2 (x2) matrices of 8x8 bf16 from shared memory. Lane 8i+j passes the address of
// row j of matrix i, 16-byte aligned; afterwards r[i] of lane l holds elements (l/4, 2*(l%4)) and
// (l/4, 2*(l%4)+1) of matrix i. The trans forms give the elements of the transposed matrices.
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(smem_address(row))
                 : "memory");
}
__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(smem_address(row))
                 : "memory");
}
__device__ __forceinline__ void ldmatrix_x2(uint32_t (&r)[2], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];\n"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(smem_address(row))
                 : "memory");
}
__device__ __forceinline__ void ldmatrix_x2_trans(uint32_t (&r)[2], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];\n"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(smem_address(row))
                 : "memory");
}

// Copies 16 bytes from global to shared memory behind the thread's back; writes zeros where !valid
// (src is not read then). Both addresses 16-byte aligned. The data may be read by this thread after
// cp_async_wait_group, by the others after a barrier that follows it.
__device__ __forceinline__ void cp_async_16(void* dst, const void* src, bool valid = true) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(smem_address(dst)),
                 "l"(src), "r"(valid ? 16 : 0)
                 : "memory");
}
// Closes a group of the copies issued since the last commit (possibly none).
__device__ __forceinline__ void cp_async_commit() {
    asm volatile("cp.async.commit_group;\n" ::: "memory");
}
// Waits until at most `pending` of this thread's latest groups are still in flight.
template <int pending>
__device__ __forceinline__ void cp_async_wait_group() {
    asm volatile("cp.async.wait_group %0;\n" ::"n"(pending) : "memory");
}

#endif
