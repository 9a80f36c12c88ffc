#!/usr/bin/env bash
# The toys give the same numbers, on any number of ranks, and each differs little from the one before.
. scripts/test/tap.sh
if ! command -v mpirun > /dev/null || ! command -v mpicc > /dev/null; then skip "toys" "no MPI here"; exit; fi
. scripts/test/mpi.sh
here=dev/parallel
expect "make toys: one loss" 0 "01_serial alone" "04_zero3 on 3 ranks" -- "${MAKE:-make}" --no-print-directory toys BUILD="${BUILD:-build}"
[ "$(grep -oE 'step 200 loss .*' "$work/.all" | sort -u | wc -l)" = 1 ] && ok "of all of them" || not_ok "of all of them"
toys=${BUILD:-build}/toys
"$toys/01_serial" > "$work/expected"
[ "$(wc -l < "$work/expected")" = 10 ] && awk 'NR == 1 { first = $4 } END { exit !($4 < first / 3) }' "$work/expected" \
    && ok "01_serial learns" || not_ok "01_serial learns"
for toy in 02_ddp 03_zero1 04_zero3; do
    for ranks in 1 2 3 5; do
        launch $ranks "$toys/$toy" > "$work/out" 2> "$work/err"
        cmp -s "$work/out" "$work/expected" && ok "$toy on $ranks" || { head -n 3 "$work/out" "$work/err"; not_ok "$toy on $ranks"; }
    done
done
previous=01_serial
for toy in 02_ddp 03_zero1 04_zero3; do
    lines=$(diff <(grep -v '^//' $here/$previous.cpp) <(grep -v '^//' $here/$toy.cpp) | grep -c '^>')
    [ "$lines" -le 16 ] && ok "$previous -> $toy: $lines lines" || not_ok "$previous -> $toy: $lines lines"
    previous=$toy
done
