#!/bin/bash
# scripts/sim_schedules.sh TESTS [ORDER...]: do results depend on the order in which threads, blocks
# and streams run? Runs the digest test of TESTS (build/sim/kernel_tests) in the simulator's default
# order and in others, and compares. Exits 1 on a difference.
set -euo pipefail
tests=$1
shift
orders=${*:-rev rand:1 rand:2 rand:3}
digests() { "$tests" --gtest_filter='digests_cuda.*' | grep '^digest '; }

expected=$(digests)
status=0
for order in $orders; do
    stream=$([[ $order == rand:* ]] && echo "$order" || echo rand:1)
    if difference=$(diff <(echo "$expected") <(CUSIM_SCHED=$order CUSIM_STREAM=$stream digests)); then
        echo "order $order: $(wc -l <<< "$expected") digests equal"
    else
        echo "order $order: results differ"
        echo "$difference"
        status=1
    fi
done
exit $status
