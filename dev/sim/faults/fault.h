// Planted faults: small programs that are wrong in one way, each with a correct twin.
//
// A case is a function over `wrong`: with true the fault is in it, with false it is correct. Cases
// check their results, so a fault that no tool reports can at least show as a wrong result.
#pragma once
#include <cmath>
#include <vector>

#include "llmc/core/launch.cuh"
#include "llmc/core/packed.cuh"
#include "llmc/core/tensorop.cuh"

struct Case {
    const char* name;
    void (*run)(bool wrong);
    Case(const char* name, void (*run)(bool));  // registers it
};
#define CASE(name)                                      \
    static void name##_case(bool wrong);                \
    static const Case name##_entry{#name, name##_case}; \
    static void name##_case(bool wrong)

// Launches kernel<true> or kernel<false>.
#define LAUNCH_EITHER(kernel, grid, block, smem, ...)                           \
    (wrong ? launch(kernel<true>, grid, block, smem, CudaStream{}, __VA_ARGS__) \
           : launch(kernel<false>, grid, block, smem, CudaStream{}, __VA_ARGS__))

// n floats of device memory: 0, 1, 2, ..., or nothing yet.
enum class Content { Numbers, Nothing };
float* device_floats(int n, Content content);
std::vector<float> host_copy(const float* p, int n);

// Counts values that differ from expected(i) as a wrong result; NaN differs from everything.
void expect_values(const std::vector<float>& values, float (*expected)(int i));
