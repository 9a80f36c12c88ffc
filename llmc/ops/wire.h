// llmc/ops/wire.h: gradients as 16-bit numbers, for sending.
//
//   pack     y = round(x * 2^k)          to nearest, ties to even
//   unpack   x = y * 2^-k                exact
//   add      acc += y * 2^-k             in fp32
//
// bf16 has fp32's range and 8 bits: k = 0, one rounding is at most 2^-8 |x|. fp16 has 11 bits but
// spans 2^-24 to 65504: 1e5 overflows, and 2e-6 keeps 5 bits. So what is sent together is scaled by
// a power of two, the same on all ranks, such that the largest |x| of any rank times the number of
// ranks lies in (2^13, 2^15]: neither an addend nor the sum of all ranks overflows, and a rounding
// is at most max(2^-11 |x|, 2^-25 * 2^-k), which is 2^-38 of ranks * largest or less. A NaN stays
// one, and an infinity; where there is any, k = 0.
// Definition: wire_cpu.cpp.  Fast: wire.cu.  Proof: wire_test.cpp, wire_cuda_test.cu.
#pragma once
#include <cstddef>
#include <cstdint>

#include "llmc/core/backend.h"

enum class Wire { Fp32, Bf16, Fp16 };

// most = max(most, |x[i]|) as the bits of fp32, which as integers have the order of what they mean,
// with infinity and NaN above all numbers: the maximum over ranks is one of int32.
void wire_most(int32_t* most,   // (1)  max=
               const float* x,  // (n)
               size_t n, CpuStream s);
void wire_most(int32_t* most, const float* x, size_t n, CudaStream s);

// `most` is read for fp16 alone.
void wire_pack(uint16_t* y,     // (n)  =
               const float* x,  // (n)
               size_t n, Wire wire, const int32_t* most, int ranks, CpuStream s);
void wire_pack(uint16_t* y, const float* x, size_t n, Wire wire, const int32_t* most, int ranks,
               CudaStream s);

void wire_unpack(float* x,           // (n)  =
                 const uint16_t* y,  // (n)
                 size_t n, Wire wire, const int32_t* most, int ranks, CpuStream s);
void wire_unpack(float* x, const uint16_t* y, size_t n, Wire wire, const int32_t* most, int ranks,
                 CudaStream s);

void wire_add(float* acc,         // (n)  +=
              const uint16_t* y,  // (n)
              size_t n, Wire wire, const int32_t* most, int ranks, CpuStream s);
void wire_add(float* acc, const uint16_t* y, size_t n, Wire wire, const int32_t* most, int ranks,
              CudaStream s);
