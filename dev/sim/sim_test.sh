#!/usr/bin/env bash
# The device code seen from further sides than kernel_tests: planted faults in every mode, other
# orders of threads and streams, what nvcc and ptxas say.
. scripts/test/tap.sh
: "${BUILD:=build}"

# shown NAME COMMAND...: like is, but the output stays in the log when it passes.
shown() {
    local name=$1; shift
    if "$@"; then ok "$name"; else not_ok "$name"; fi
}

shown "each planted fault is reported, each correct twin is clean" \
    "${MAKE:-make}" -s --no-print-directory BUILD="$BUILD" sim-faults

# Races inside a block and between streams, as clang's thread sanitizer sees them. The slowest ops are
# left to the digests, which run each kernel once, and to the training run of cuda_test.sh.
if command -v clang++ > /dev/null; then
    some='-layernorm*:rmsnorm*:attention*:matmul*:sim_cost*'
    [ -z "${TEST_DEEP:-}" ] || some='*'
    is "kernel tests under the thread sanitizer" \
        "$BUILD/sim-tsan/kernel_tests" --gtest_brief=1 --gtest_filter="$some"
    [ -z "${TEST_DEEP:-}" ] || is "kernel tests under the memory sanitizer" \
        "$BUILD/sim-msan/kernel_tests" --gtest_brief=1
else
    skip "planted faults and kernel tests under the thread sanitizer" "no clang++"
fi
shown "equal bits in other orders of threads, blocks and streams" \
    scripts/sim_schedules.sh "$BUILD/sim/kernel_tests"

if command -v "${NVCC:-nvcc}" > /dev/null; then
    archs="sm_80 sm_90"
    [ -z "${TEST_DEEP:-}" ] || archs="sm_80 sm_89 sm_90"
    # shellcheck disable=SC2086  # archs are words
    shown "nvcc compiles for $archs without a warning, ptxas spills nothing" \
        scripts/ptxas_table.sh $archs
else
    skip "nvcc compiles for sm_80 and sm_90 without a warning, ptxas spills nothing" "no nvcc"
fi
