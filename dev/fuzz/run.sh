#!/usr/bin/env bash
# dev/fuzz/run.sh [SECONDS [TARGET...]]: fuzzes each target for so long (default: 60 s, all targets), from
# small seeds and what earlier runs found; a table on stdout. Exit 1 with the input's name on a finding.
# `make fuzz` first.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
fuzz=${BUILD:-build}/fuzz
seconds=${1:-60}
shift $(($# > 0))
targets=("$@")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <("$fuzz/fuzz")
rm -rf "$fuzz/seeds"
python3 dev/fuzz/seeds.py "$fuzz/seeds" || exit 1
failed=0
printf '%-18s %12s %9s %9s %8s\n' target inputs coverage features corpus
for target in "${targets[@]}"; do
    mkdir -p "$fuzz/corpus/$target" "$fuzz/findings"
    FUZZ=$target ASAN_OPTIONS=allocator_may_return_null=0 "$fuzz/fuzz" -max_total_time="$seconds" -rss_limit_mb=2048 \
        -malloc_limit_mb=512 -timeout=10 -max_len=4096 -print_final_stats=1 -artifact_prefix="$fuzz/findings/$target-" \
        "$fuzz/corpus/$target" "$fuzz/seeds/$target" > "$fuzz/$target.log" 2>&1
    code=$?
    awk -v target="$target" '/ cov: / { for (i = 1; i < NF; i++) { if ($i == "cov:") cov = $(i + 1); if ($i == "ft:") ft = $(i + 1); if ($i == "corp:") corp = $(i + 1) } }
        /number_of_executed_units/ { n = $2 }
        END { printf "%-18s %12d %9d %9d %8s\n", target, n, cov, ft, corp }' "$fuzz/$target.log"
    if [ $code != 0 ]; then
        failed=1
        grep -E 'ERROR|runtime error|SUMMARY|Test unit written' "$fuzz/$target.log"
    fi
done
exit $failed
