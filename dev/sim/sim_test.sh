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
else
    skip "planted faults and kernel tests under the thread sanitizer" "no clang++"
fi
shown "equal bits in other orders of threads, blocks and streams" \
    scripts/sim_schedules.sh "$BUILD/sim/kernel_tests"

# The example of the README, word for word.
if [ -n "${TEST_DEEP:-}" ] && command -v gdb > /dev/null; then
    sed -n 's/ *#.*//; s/^ *(gdb) //p' dev/sim/README.md > "$work/commands"
    is "a build for the debugger" "${MAKE:-make}" -s --no-print-directory BUILD="$BUILD/debug" \
        SIM_OPT='-O0 -g3' "$BUILD/debug/sim/faults"
    # shellcheck disable=SC2016  # gdb's names of values
    expect "a breakpoint in a kernel, and steps" 0 "Breakpoint 1, reverse_kernel<false>" '$1 = 5' \
        "14	    mine[t] = s[127 - t];" "RUNNING" "threads  127..127  done" "in __syncthreads" \
        '$2 = {127, 126, 125, 124}' -- \
        gdb -nx -batch -x dev/sim/cusim-gdb.py -x "$work/commands" \
        --args "$BUILD/debug/sim/faults" missing_syncthreads right
else
    skip "a breakpoint in a kernel, and steps" "make test-deep with gdb runs it"
fi

if command -v "${NVCC:-nvcc}" > /dev/null; then
    archs="sm_80 sm_90"
    [ -z "${TEST_DEEP:-}" ] || archs="sm_80 sm_89 sm_90"
    # shellcheck disable=SC2086  # archs are words
    shown "nvcc compiles for $archs without a warning, ptxas spills nothing" \
        scripts/ptxas_table.sh $archs
else
    skip "nvcc compiles for sm_80 and sm_90 without a warning, ptxas spills nothing" "no nvcc"
fi
