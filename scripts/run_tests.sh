#!/usr/bin/env bash
# All tests, by `make test`: installs what is missing, builds, runs every GoogleTest program and
# every *_test.sh, prints what failed and why tests were skipped, and closes with
#   N passed, N failed, N skipped
# A test program speaks GoogleTest's console format, a script the Test Anything Protocol
# ("ok 1 - name", "not ok 2 - name", "ok 3 - name # SKIP reason"). A program that dies, or that
# exits non-zero without a failed test, counts as one failed test.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
: "${BUILD:=build}" "${TEST_DATA:=$PWD/data/test}"
export TEST_DATA TRAIN_GPT="$PWD/$BUILD/train_gpt"

scripts/install_deps.sh || exit 1
jobs=$(nproc)
${MAKE:-make} --no-print-directory -j"$jobs" test-programs || exit 1
read -r -a programs <<< "$(${MAKE:-make} -s --no-print-directory test-list)"
mapfile -t shell_tests < <(ls scripts/test/*_test.sh dev/*/*_test.sh data/*_test.sh 2> /dev/null)

logs=$BUILD/test-logs
mkdir -p "$logs"
# GoogleTest's place for files: one of this run's own, so that two runs on a machine do not meet.
TEST_TMPDIR=$(mktemp -d)
export TEST_TMPDIR
trap 'rm -rf "$TEST_TMPDIR"' EXIT
: > "$logs/summary"
for test in "${programs[@]}" "${shell_tests[@]}"; do
    log=$logs/${test//\//-}.log
    run=("$test")
    [[ $test == *.sh ]] && run=(bash "$test")
    start=$SECONDS
    "${run[@]}" < /dev/null > "$log" 2>&1
    code=$?
    awk -v test="$test" -v code=$code -v seconds=$((SECONDS - start)) -f scripts/count_tests.awk \
        "$log" | tee -a "$logs/summary"
done
awk '/^[^ ].*: [0-9]+ passed, / { passed += $2; failed += $4; skipped += $6 }
     END { printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
           exit failed > 0 || passed == 0 }' "$logs/summary"
