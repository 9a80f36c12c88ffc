#!/usr/bin/env bash
# make bench: what it prints, and that a training step needs the memory that the plan says. Speed
# itself is no test: it depends on what else the machine does.
. scripts/test/tap.sh

: "${BUILD:=build}"
free_kib=$(awk '/MemAvailable/ { print $2 }' /proc/meminfo)
if [ "$free_kib" -lt $((5 * 1024 * 1024)) ]; then
    skip "a step of GPT-2 124M" "less than 5 GiB of free memory"
    exit
fi
"${MAKE:-make}" -s "$BUILD/bench" > "$work/make" 2>&1 || cat "$work/make"
expect "bench" 0 "tokens/s" "of the SGEMM peak" "alone on the step's GEMMs" "attention" -- \
    "$BUILD/bench" gpt2:124M 4 256 0 1
read -r plan peak <<< "$(sed -nE 's/.*plan ([0-9.]+) GiB, peak resident ([0-9.]+) GiB.*/\1 \2/p' "$work/.out")"
is "peak memory ($peak GiB) is the plan's ($plan GiB) within a tenth" \
    awk -v a="$peak" -v b="$plan" 'BEGIN { exit !(a > 0.9 * b && a < 1.1 * b) }'
is "and under 3 GiB" awk -v a="$peak" 'BEGIN { exit !(a > 0 && a < 3) }'
