#!/usr/bin/env bash
# Many ranks under mpirun: right collectives, one curve, checkpoints of any layout in any layout, and
# ranks that end together whatever happens to one of them.
. scripts/test/tap.sh
export OMP_WAIT_POLICY=passive
train_gpt=${TRAIN_GPT:-build/train_gpt}

if ! command -v mpirun > /dev/null; then skip "many ranks" "no mpirun here"; exit; fi
if "$train_gpt" --version | grep -q '^MPI *no'; then skip "many ranks" "built without MPI"; exit; fi
. scripts/test/mpi.sh

expect "selftest-comm" 0 "values: right" "all-reduce, the library's" -- launch 2 "$train_gpt" selftest-comm --max-mb 1
expect "selftest-comm on 5 ranks" 0 "values: right" -- launch 5 "$train_gpt" selftest-comm --max-mb 0
expect "selftest-comm on one" 0 "values: right" "not started by mpirun" -- "$train_gpt" selftest-comm

toy_ranks
toy+=(--steps 20 --val-every 10 --val-batches 2)
is "one rank, 12 micro-batches a step" "$train_gpt" "${toy[@]}" --out "$work/one" --save-every 10
final=$(state "$work/one")
middle=$(state "$work/one/ckpt/step-0000000010")
history "$work/one" > "$work/expected"

# ---- any layout: the same log, the same state
run_layout() {  # RANKS,ZERO OUT OPTIONS...
    local layout=$1 out=$2; shift 2
    launch "${layout%,*}" "$train_gpt" "${toy[@]}" --zero "${layout#*,}" --out "$out" "$@" > "$work/out" 2> "$work/err" \
        || { tail -n 5 "$work/err"; bad+=" $layout(exit)"; }
}
layouts="1,3 2,0 2,1 2,2 2,3 3,1 4,2 4,3"
[ "${TEST_DEEP:-}" = 1 ] && layouts=$(echo {1..4},{0..3})
bad=""
for layout in $layouts; do
    out=$work/layout-$layout
    run_layout "$layout" "$out" --save-every 10 --bucket-mb 0.007
    [ "$(state "$out")" = "$final" ] || bad+=" $layout(state)"
    [ "$(state "$out/ckpt/step-0000000010")" = "$middle" ] || bad+=" $layout(middle)"
    history "$out" | cmp -s - "$work/expected" || bad+=" $layout(log)"
    [ "$(find "$out"/ckpt/step-0000000020/shards -name 'rank-*.h5' | wc -l)" = "${layout%,*}" ] || bad+=" $layout(files)"
done
[ -z "$bad" ] && ok "one curve on: $layouts" || { echo "differs:$bad"; not_ok "one curve on: $layouts"; }

# ---- from any layout's checkpoint in any layout: the next steps are the same
pairs="2,1:3,3 3,1:2,2 4,3:1,0 2,0:4,2 4,2:2,1"
[ "${TEST_DEEP:-}" = 1 ] && pairs=$(for a in $layouts; do for b in $layouts; do echo "$a:$b"; done; done)
awk -F'[:,]' '$2 > 10' "$work/expected" > "$work/tail"
bad=""
for pair in $pairs; do
    out=$work/loaded
    rm -rf "$out"
    run_layout "${pair#*:}" "$out" --resume "$work/layout-${pair%:*}/ckpt/step-0000000010" --save-every 0
    [ "$(state "$out")" = "$final" ] || bad+=" $pair(state)"
    history "$out" | awk -F'[:,]' '$2 > 10' | cmp -s - "$work/tail" || bad+=" $pair(log)"
done
[ -z "$bad" ] && ok "any layout's checkpoint in any layout: $(echo $pairs | wc -w) pairs" || { echo "differs:$bad"; not_ok "any layout's checkpoint in any layout"; }

grep -q '"comm_exposed_ms"' "$work/layout-2,2/log.jsonl" && ok "the log has hidden and exposed communication" \
    || not_ok "the log has hidden and exposed communication"
# The table at the start names what is held, and the plan says the same.
memory_of() { awk '/^ *memory|^total memory/ { print $(NF-1), $NF; exit }' "$1"; }
run_layout 2,2 "$work/planned" --save-every 0 --bucket-mb 0.007
"$train_gpt" plan "${toy[@]}" --ranks 2 --zero 2 --bucket-mb 0.007 | grep '^total memory' > "$work/plan"
[ -n "$(memory_of "$work/plan")" ] && [ "$(memory_of "$work/plan")" = "$(memory_of "$work/out")" ] && ok "memory as planned: $(memory_of "$work/plan")" \
    || { cat "$work/plan" "$work/out"; not_ok "memory as planned"; }

# ---- one timeline of all ranks
run_layout 2,3 "$work/traced" --steps 3 --warmup-steps 1 --save-every 0 --trace "$work/trace.json"
is "--trace: both ranks' micro-batches and collectives, with bytes, in order" python3 - "$work/trace.json" << 'EOF'
import json, sys
events = [e for e in json.load(open(sys.argv[1]))["traceEvents"] if e["ph"] == "X"]
for rank in (0, 1):
    mine = [e for e in events if e["pid"] == rank]
    assert sum(e["name"] == "micro-batch" for e in mine) == 3 * 12 / 2
    for name in ("all-gather, parameters of a block", "scatter, gradients of a block", "all-reduce, exact sum"):
        assert any(e["name"] == name and e["args"]["bytes"] > 0 for e in mine), name
    assert any(e["name"] == "save" for e in mine)
    assert all(e["ts"] >= 0 and e["dur"] >= 0 for e in mine)
    # A gather behind a micro-batch runs on the other thread.
    assert {e["tid"] for e in mine} == {0, 1}
EOF

# ---- what is refused: one message, the same code on every rank, nothing written
run=("$train_gpt" "${toy[@]}" --out "$work/no")
expect "a batch that does not divide" 2 "x ranks 5" "--batch-tokens 310 or 465" -- launch 5 "${run[@]}"
[ "$(grep -c 'error:' "$work/.err")" = 1 ] && ok "in one message" || not_ok "in one message"
codes 3 "${run[@]}" --model gpt2:125M > "$work/out" 2> "$work/err"
same_codes "unknown model" 2 3
[ "$(grep -c 'error:' "$work/err")" = 1 ] && grep -q "rank 0/3" "$work/err" && ok "rank 0 alone says so" || { cat "$work/err"; not_ok "rank 0 alone says so"; }

# Rank 1 gets other words at the end of its command line.
differ() { echo 'if [ $OMPI_COMM_WORLD_RANK = 1 ]; then exec "$@" '"$1"'; fi; exec "$@"'; }
expect "ranks with different options" 2 "rank 1 was started with something else" "--lr = 0.002" "--lr = 0.003" -- \
    launch 3 bash -c "$(differ "--lr 0.002")" _ "${run[@]}"
head -c 3001 "$work/d_train_000000.bin" > "$work/cut.bin"
start=$SECONDS
codes 3 bash -c "$(differ "--data $work/cut.bin")" _ "${run[@]}" > "$work/out" 2> "$work/err"
same_codes "a damaged file on one rank" 3 3
grep -q "rank 1/3.*cut.bin" "$work/err" && [ $((SECONDS - start)) -lt 10 ] && ok "that rank says so, within 10 s" || { cat "$work/err"; not_ok "that rank says so, within 10 s"; }
[ ! -e "$work/no" ] && ok "nothing was written by what was refused" || not_ok "nothing was written by what was refused"
