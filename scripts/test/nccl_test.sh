#!/usr/bin/env bash
# Ranks on GPUs, in the simulator, where each process has GPUs and an NCCL of its own: right collectives,
# the bits of one rank for every stage, memory as planned, and an end for all when one is gone.
. scripts/test/tap.sh
export OMP_WAIT_POLICY=passive CUSIM_DEVICES=6
train_gpt=${CUDA_TRAIN_GPT:-${BUILD:-build}/sim/train_gpt}
. scripts/test/mpi.sh
if [ ! -x "$train_gpt" ]; then skip "ranks on GPUs" "no $train_gpt; make test builds it"; exit; fi
needs_mpi "ranks on GPUs"

toy_data
cat > "$work/toy.json" << 'JSON'
{"model_type": "gpt2", "n_layer": 2, "n_head": 1, "n_embd": 64, "n_inner": 80,
 "vocab_size": 257, "n_positions": 16}
JSON
toy+=(--device cuda --seq-len 11 --micro-batch 1 --batch-tokens 66 --steps 3 --warmup-steps 1
    --val-every 3 --val-batches 1 --bucket-mb 0.05)
run_layout() {  # RANKS,ZERO OUT OPTIONS...
    local layout=$1 out=$2; shift 2
    launch "${layout%,*}" "$train_gpt" "${toy[@]}" --zero "${layout#*,}" --out "$out" "$@" > "$work/out" 2> "$work/err" \
        || { tail -n 5 "$work/err"; bad+=" $layout(exit)"; }
}
curve() {  # NAME LAYOUTS OPTIONS...: all layouts have the state and the log of one rank
    local name=$1 layouts=$2 layout; shift 2
    bad=""
    rm -rf "$work/one" "$work/many"
    run_layout 1,0 "$work/one" "$@"
    for layout in $layouts; do
        run_layout "$layout" "$work/many" "$@"
        [ -n "$(state "$work/one")" ] && [ "$(state "$work/many")" = "$(state "$work/one")" ] || bad+=" $layout(state)"
        history "$work/many" | cmp -s - <(history "$work/one") || bad+=" $layout(log)"
        rm -rf "$work/many"
    done
    [ -z "$bad" ] && ok "$name: $layouts" || { echo "differs:$bad"; not_ok "$name: $layouts"; }
}

# ---- who is on which GPU, right collectives
expect "selftest-comm between GPUs" 0 "and between GPUs" "NCCL 2." "GPU 0 to others" -- \
    launch 3 "$train_gpt" selftest-comm --device cuda --max-mb "${TEST_DEEP:-0}"
CUSIM_DEVICES=1 expect "two ranks on one GPU" 2 "ranks 0 and 1 have the same GPU" "one process a GPU" -- \
    launch 2 "$train_gpt" selftest-comm --device cuda

expect "--device auto finds a GPU on one rank alone" 2 "found device = cpu" "expected device = cuda" -- \
    launch 2 bash -c '[ $OMPI_COMM_WORLD_RANK = 0 ] || export CUSIM_DEVICES=0; exec "$@"' _ "$train_gpt" selftest-comm --start-limit 20

# ---- one curve: the state and the log of one rank, for every stage
few_or_all() { if [ "${TEST_DEEP:-}" = 1 ]; then echo {1..3},{0..3} 6,{1..3}; else echo "$@"; fi; }
curve "one curve in fp32" "$(few_or_all 2,0 3,1 2,2 3,3)"
curve "one curve in bf16" "$(few_or_all 2,1 2,3)" --dtype bf16 --rounding stochastic
# Streams that run ahead of each other wherever no event holds them back.
CUSIM_STREAM=rand:3 curve "one curve with streams out of order" "$(few_or_all 2,2)"
[ "${TEST_DEEP:-}" = 1 ] && curve "one curve without overlap" "$(few_or_all)" --overlap off

is "the table names NCCL and how GPUs reach each other" grep -q "NCCL 2.*GPU 0 to others of this host" "$work/out"

# ---- the timeline has the times of the GPU, not those at which the host queued its work
bad=""
run_layout 2,1 "$work/traced" --val-every 0 --save-every 0 --trace "$work/trace.json"
[ -z "$bad" ] && is "--trace: rows of the GPU, in the order of its streams" python3 - "$work/trace.json" << 'EOF'
import json, sys
events = json.load(open(sys.argv[1]))["traceEvents"]
names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e.get("name") == "thread_name"}
for rank in (0, 1):
    def row(name):
        return [e for e in events if e["ph"] == "X" and e["pid"] == rank and names[rank, e["tid"]] == name]
    def named(part, rows):
        return [e for e in rows if e["name"].startswith(part)]
    def end(e): return e["ts"] + e["dur"]
    gpu, sent = row("GPU"), row("GPU, communication")
    batches, updates, waits = (named(n, gpu) for n in ("micro-batch", "update", "wait for communication"))
    assert len(batches) == 3 * 6 / 2 and len(updates) == 3 and waits, (len(batches), len(updates), len(waits))
    assert not named("micro-batch", row("training"))
    reductions = named("reduce-scatter, gradients", sent)
    assert reductions and all(e["args"]["bytes"] > 0 for e in reductions)
    assert all(e["ts"] >= 0 and e["dur"] >= 0 for e in gpu + sent)
    # One stream does one thing after another; and an update comes after what it adds up has been sent.
    for rows in (batches, updates, sent):
        assert all(end(a) <= b["ts"] + 1 for a, b in zip(rows, rows[1:])), "out of order"
    for i, update in enumerate(updates):
        assert end(batches[3 * i + 2]) <= update["ts"] + 1
        mine = reductions[i * len(reductions) // 3:(i + 1) * len(reductions) // 3]
        # Two streams have two origins, each known to within its synchronisation.
        assert all(end(e) <= update["ts"] + 2000 for e in mine), "sent after the update"
EOF

# ---- saved behind the training: the copy in host memory is that of its step
. scripts/test/saved_behind.sh
saved_behind "--async-save on a GPU" 1 3 -- "${toy[@]}" --val-every 0
saved_behind "--async-save on two GPUs, in bf16" 2 3 -- "${toy[@]}" --val-every 0 --zero 3 --dtype bf16 --rounding stochastic

# ---- fast mode, and 16 bits on the way
expect "fast mode in 16 bits" 0 -- launch 2 "$train_gpt" "${toy[@]}" --zero 1 --reduction fast --wire fp16 --out "$work/fp16"
launch 2 "$train_gpt" "${toy[@]}" --reduction fast --wire fp16 --out "$work/fp16-0" > "$work/out" 2> "$work/err" || cat "$work/err"
is "stages 0 and 1 round the same numbers" test "$(state "$work/fp16")" = "$(state "$work/fp16-0")"

# ---- memory as planned
memory_of() { awk '/^ +memory +[0-9]|^total memory/ { print $(NF-1), $NF; exit }' "$1"; }
bad=""
run_layout 2,3 "$work/planned" --save-every 0
"$train_gpt" plan "${toy[@]}" --ranks 2 --zero 3 > "$work/plan"
[ -z "$bad" ] && [ -n "$(memory_of "$work/plan")" ] && [ "$(memory_of "$work/plan")" = "$(memory_of "$work/out")" ] && grep -q "gradients of other ranks" "$work/plan" &&
    ok "memory as planned: $(memory_of "$work/plan")" || { cat "$work/plan" "$work/out"; not_ok "memory as planned"; }

# ---- a rank that dies takes the other along, though that waits on its GPU; mpirun would end it only later
killed_beside '[ -s "$work/killed/log.jsonl" ]' "$train_gpt" "${toy[@]}" --steps 5000 --zero 2 --save-every 0 --val-every 0 --out "$work/killed"
[ -s "$work/killed/log.jsonl" ] && [ "$code" = 6 ] && [ $gone -lt 10 ] && grep -q "is gone in step" "$work/err" &&
    ok "a killed rank: the other is gone within 10 s, code 6" ||
    { tail "$work/err"; echo "exit code $code after $gone s"; not_ok "a killed rank: the other is gone within 10 s, code 6"; }
