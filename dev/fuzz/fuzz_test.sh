#!/usr/bin/env bash
# All fuzzers for a minute together, with TEST_DEEP=1.
. scripts/test/tap.sh
if [ "${TEST_DEEP:-}" != 1 ]; then skip "fuzzers" "TEST_DEEP=1 builds and runs them"; exit; fi
if ! command -v clang++ > /dev/null && ! ls /usr/bin/clang++-* > /dev/null 2>&1; then skip "fuzzers" "no clang here"; exit; fi
is "make fuzz" "${MAKE:-make}" -j2 BUILD="${BUILD:-build}" fuzz
targets=$("${BUILD:-build}/fuzz/fuzz" | wc -l)
is "$targets targets, a minute together" dev/fuzz/run.sh $((60 / targets + 1))
