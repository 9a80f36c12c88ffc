#!/usr/bin/env bash
# A run that was stopped and resumed is the run that was not: same log, same state, for every step
# and every signal. And what a run refuses to start with.
. scripts/test/tap.sh
. scripts/test/toy.sh
export OMP_WAIT_POLICY=passive
train_gpt=${TRAIN_GPT:-build/train_gpt}

toy_data
toy+=(--steps 60 --micro-batch 3 --batch-tokens 186 --warmup-steps 7 --val-every 20 --val-batches 2)

"$train_gpt" "${toy[@]}" --out "$work/whole" --save-every 1 --keep 100 > /dev/null 2> "$work/err"
code=$?
[ $code = 0 ] && [ "$(history "$work/whole" | wc -l)" = 64 ] && ok "60 steps, 4 validations" || { cat "$work/err"; not_ok "60 steps, 4 validations"; }
final=$(state "$work/whole")
history "$work/whole" > "$work/expected"
last_loss() { grep '"loss"' "$1/log.jsonl" | tail -n "$2" | head -n 1 | sed -E 's/.*"loss":([0-9.]+).*/\1/'; }
awk -v a="$(last_loss "$work/whole" 60)" -v b="$(last_loss "$work/whole" 1)" 'BEGIN { exit !(b < a - 1) }' \
    && ok "the loss falls" || not_ok "the loss falls"

# ---- resume at every step
bad=""
for k in $(seq 1 59); do
    rm -rf "$work/part"
    "$train_gpt" "${toy[@]}" --out "$work/part" --save-every 0 \
        --resume "$work/whole/ckpt/step-$(printf %010d "$k")" > /dev/null 2> "$work/err" || bad+=" $k(exit)"
    awk -v k="$k" -F'[:,]' '$2 > k' "$work/expected" > "$work/tail"
    history "$work/part" | awk -v k="$k" -F'[:,]' '$2 > k' | cmp -s - "$work/tail" || bad+=" $k(log)"
    [ "$(state "$work/part")" = "$final" ] || bad+=" $k(state)"
done
[ -z "$bad" ] && ok "resumed at each of 59 steps" || { echo "differs:$bad"; cat "$work/err"; not_ok "resumed at each of 59 steps"; }

# ---- the same run without saving in between, and in other words
for how in "--recompute selective" "--recompute block" "--threads 2" "--zero 1" "--save-every 7 --keep 2"; do
    rm -rf "$work/other"
    # shellcheck disable=SC2086
    "$train_gpt" "${toy[@]}" --out "$work/other" $how > /dev/null 2>&1
    [ "$(state "$work/other")" = "$final" ] && ok "same state with $how" || not_ok "same state with $how"
done

# ---- saved behind the training: the same files at every step, though training goes on
"$train_gpt" "${toy[@]}" --out "$work/behind" --save-every 1 --keep 100 --async-save --trace "$work/behind.json" > "$work/out" 2>&1 || { tail -n 3 "$work/out"; not_ok "--async-save"; }
# A manifest but for what names the run and the manifest's own digest.
manifest() { sed -E 's/"(digest|run_id)":"[^"]*",?//; s/"run_id":"[^"]*",?//' "$1/manifest.json"; }
bad=""
for k in $(seq 1 60); do
    step=ckpt/step-$(printf %010d "$k")
    for file in shards/rank-00000.h5 model.h5; do cmp -s "$work/whole/$step/$file" "$work/behind/$step/$file" || bad+=" $k($file)"; done
    [ "$(manifest "$work/whole/$step")" = "$(manifest "$work/behind/$step")" ] || bad+=" $k(manifest)"
done
[ -z "$bad" ] && ok "--async-save: the same bytes at each of 60 steps" || { echo "differs:$bad"; not_ok "--async-save: the same bytes at each of 60 steps"; }
history "$work/behind" | cmp -s - "$work/expected" && ok "and the same log" || not_ok "and the same log"
[ "$(grep -c '"event":"save"' "$work/behind/log.jsonl")" = 60 ] && grep -q '"exposed_seconds":' "$work/behind/log.jsonl" && ok "each save is in the log, with what it cost the training" \
    || not_ok "each save is in the log, with what it cost the training"
is "the timeline has the saves on a thread of their own" python3 - "$work/behind.json" << 'EOF'
import json, sys
events = [e for e in json.load(open(sys.argv[1]))["traceEvents"] if e["ph"] == "X"]
saves = [e for e in events if e["name"] == "save" and e["tid"] == 2]
assert len(saves) == 59 and sum(e["name"] == "snapshot" and e["tid"] == 0 for e in events) == 59
assert sum(e["name"] == "save" and e["tid"] == 0 for e in events) == 1  # the last one
assert all(a["ts"] + a["dur"] <= b["ts"] for a, b in zip(saves, saves[1:])), "two saves at once"
steps = [e for e in events if e["name"] == "micro-batch"]
assert any(s["ts"] < m["ts"] < s["ts"] + s["dur"] for s in saves for m in steps), "nothing overlaps"
EOF
# The plan has the snapshot: weights and two moments of this rank, and the run's table says the same.
memory() { awk '/^ *memory|^total memory/ { print $(NF-1), $NF; exit }' "$1"; }
"$train_gpt" plan "${toy[@]}" --async-save | grep -v '^memory ' > "$work/plan"
[ "$(awk '/^snapshot/ { print $NF }' "$work/plan" | tr -d ,)" = $((3 * 4 * $("$train_gpt" plan "${toy[@]}" | sed -nE 's/^model .*: ([0-9,]+) parameters.*/\1/p' | tr -d ,))) ] \
    && [ "$(memory "$work/plan")" = "$(memory "$work/out")" ] && ok "--async-save: memory as planned" || { cat "$work/plan"; grep memory "$work/out"; not_ok "--async-save: memory as planned"; }
# A save that fails: the disk is full from some call on. It is said, training goes on, and at the end, when
# nothing could be saved, the run ends with code 4.
if [ -e "$(dirname "$train_gpt")/fault/libfault.so" ]; then
    FAULT_DIR=$(cd "$work" && pwd -P)/full FAULT_FAIL_AT=1200 FAULT_FAIL_ERRNO=28 FAULT_STAYS=1 LD_PRELOAD=$(dirname "$train_gpt")/fault/libfault.so \
        "$train_gpt" "${toy[@]}" --out "$(cd "$work" && pwd -P)/full" --save-every 5 --async-save > "$work/out" 2> "$work/err"
    code=$?
    [ $code = 4 ] && grep -q "NOT SAVED: .*; training goes on" "$work/out" && grep -q "step 60 could not be saved" "$work/err" \
        && state "$work/full" > /dev/null && ok "--async-save on a disk that gets full" || { echo "exit code $code"; tail -n 5 "$work/out" "$work/err"; not_ok "--async-save on a disk that gets full"; }
fi
# An error that all ranks meet waits for the save under way.
expect "a stop for non-finite numbers finishes the save under way" 5 "1 step skipped in a row" "saved " -- \
    "$train_gpt" "${toy[@]}" --out "$work/nan_behind" --lr 1e30 --grad-clip 0 --warmup-steps 0 --max-skipped 1 --save-every 1 --async-save
is "nothing unfinished is left" bash -c 'test -d "$1" && ! ls "$1" | grep tmp' _ "$work/nan_behind/ckpt"

# ---- signals: save at the step boundary, exit 7, go on as if nothing had been
long=("${toy[@]}" --steps 300000 --out "$work/signalled" --save-every 0 --val-every 0)
for signal in TERM INT USR1; do
    # In a job of its own, so that a shell that ignores SIGINT for background jobs does not pass that on.
    setsid bash -c 'trap - INT; exec "$@"' _ "$train_gpt" "${long[@]}" > "$work/err" 2>&1 &
    pid=$!
    for _ in $(seq 100); do grep -q '^step' "$work/err" 2> /dev/null && break; sleep 0.1; done
    sleep 0.3
    kill -$signal $pid
    wait $pid
    code=$?
    newest=$(ls "$work/signalled/ckpt" | grep '^step-[0-9]*$' | tail -n 1)
    if [ $code = 7 ] && grep -q "stopped by SIG$signal" "$work/err" && [ -n "$newest" ]; then
        ok "SIG$signal saves and exits with 7"
    else
        echo "exit $code, newest $newest"; tail -n 5 "$work/err"
        not_ok "SIG$signal saves and exits with 7"
    fi
done
n=$(grep -c '"loss":' "$work/signalled/log.jsonl")
distinct=$(grep '"loss":' "$work/signalled/log.jsonl" | sed -E 's/.*"step":([0-9]+).*/\1/' | sort -u | wc -l)
step=$((10#${newest#step-}))
[ "$n" = "$distinct" ] && [ "$n" = "$step" ] && ok "three stops left one line a step" || not_ok "three stops left one line a step ($n lines, $distinct steps, saved $step)"
"$train_gpt" "${long[@]}" --out "$work/straight" --save-every "$step" --keep 2 > /dev/null 2>&1 &
pid=$!
for _ in $(seq 600); do [ -f "$work/straight/ckpt/step-$(printf %010d "$step")/manifest.json" ] && break; sleep 0.1; done
kill -KILL $pid 2> /dev/null
wait $pid 2> /dev/null
[ "$(state "$work/straight/ckpt/step-$(printf %010d "$step")")" = "$(state "$work/signalled/ckpt/$newest")" ] \
    && ok "and the state is the straight run's" || not_ok "and the state is the straight run's"

# ---- numbers that are no numbers
expect "a huge learning rate stops with 5" 5 "steps skipped in a row" "hint" -- \
    "$train_gpt" "${toy[@]}" --out "$work/nan" --lr 1e30 --grad-clip 0 --max-skipped 3 --save-every 0
grep -q '"event":"skip"' "$work/nan/log.jsonl" && ok "skipped steps are in the log" || not_ok "skipped steps are in the log"

# ---- what is refused, before anything is written
run=("$train_gpt" "${toy[@]}" --out "$work/no")
expect "no data" 2 "make quickstart" -- "$train_gpt" --out "$work/no"
expect "batch that does not divide" 2 "186" "93" "279" -- "${run[@]}" --batch-tokens 200
expect "T longer than the model" 2 "found 38" "at most 37" -- "${run[@]}" --seq-len 38 --batch-tokens 228
expect "unknown preset" 2 "did you mean 'gpt2:124M'" -- "${run[@]}" --model gpt2:125M
expect "a tokenizer larger than the vocabulary" 2 "257" "at most 100" -- "${run[@]}" --vocab-size 100
mkdir "$work/bare"; cp "$work/d_train_000000.bin" "$work/bare/alone.bin"
expect "ids beyond the vocabulary" 3 "alone.bin" "byte" "100" -- \
    "$train_gpt" --model "$work/toy.json" --vocab-size 100 --data "$work/bare/alone.bin" --seq-len 31 --out "$work/no"
expect "missing data" 2 "nothing_*.bin" -- "${run[@]}" --data "$work/nothing_*.bin"
: > "$work/empty.bin"
expect "empty token file" 3 "empty.bin" -- "${run[@]}" --data "$work/empty.bin"
head -c 5000 "$work/text" > "$work/garbage.bin"
expect "garbage" 3 "garbage.bin" "20240520" -- "${run[@]}" --data "$work/garbage.bin"
head -c 3001 "$work/d_train_000000.bin" > "$work/cut.bin"
expect "truncated token file" 3 "cut.bin" -- "${run[@]}" --data "$work/cut.bin"
expect "config file with an unknown key" 2 "stpes" "steps" -- bash -c "echo 'stpes = 3' > '$work/c.toml'; exec $(printf '%q ' "${run[@]}") --config '$work/c.toml'"
[ ! -e "$work/no" ] && ok "nothing was written by what was refused" || not_ok "nothing was written by what was refused"

mkdir "$work/foreign"; echo x > "$work/foreign/thesis.txt"
expect "foreign --out" 2 "foreign" -- "$train_gpt" "${toy[@]}" --out "$work/foreign"
expect "checkpoint of another model" 2 "another model" "n_embd" -- \
    "$train_gpt" "${toy[@]}" --model gpt2:d1 --out "$work/whole"
expect "checkpoint with another --seq-len" 2 "--seq-len" -- \
    "$train_gpt" "${toy[@]}" --seq-len 29 --batch-tokens 174 --out "$work/whole"
expect "checkpoint with another --seed" 2 "--seed" "found 42" "expected 5" -- \
    "$train_gpt" "${toy[@]}" --seed 5 --out "$work/whole"
[ "$(state "$work/whole")" = "$final" ] && ok "the refused checkpoint is intact" || not_ok "the refused checkpoint is intact"

setsid "$train_gpt" "${toy[@]}" --steps 300000 --out "$work/busy" > /dev/null 2>&1 &
pid=$!
for _ in $(seq 100); do [ -f "$work/busy/log.jsonl" ] && break; sleep 0.1; done
expect "a second run on the same --out" 2 "busy" "$pid" -- "$train_gpt" "${toy[@]}" --out "$work/busy"
kill -KILL $pid; wait $pid 2> /dev/null

# ---- what is complete is said to be
expect "a run that is complete" 0 "complete at step 60" "!step 60/60" -- "$train_gpt" "${toy[@]}" --out "$work/whole"

# ---- the other commands
expect "eval" 0 '"val_loss"' -- "$train_gpt" eval --model "$work/whole" --data "$work/d_val_*.bin" --seq-len 31
"$train_gpt" generate --model "$work/whole" --prompt "line 7" --tokens 90 --seed 1 > "$work/text1" 2> /dev/null
"$train_gpt" generate --model "$work/whole" --prompt "line 7" --tokens 90 --seed 1 > "$work/text2" 2> /dev/null
"$train_gpt" generate --model "$work/whole" --prompt "line 7" --tokens 90 --seed 2 > "$work/text3" 2> /dev/null
grep -q '^line 7' "$work/text1" && cmp -s "$work/text1" "$work/text2" && ! cmp -s "$work/text1" "$work/text3" \
    && ok "generate: prompt first, same seed same text" || not_ok "generate: prompt first, same seed same text"
expect "plan" 0 "total memory" "one checkpoint" -- "$train_gpt" plan --model gpt2:1558M
expect "a width that is not 4 C has no place in llm.c's format" 2 "MLP width" -- \
    "$train_gpt" export "$work/whole" --format llmc --out "$work/m.bin"
"$train_gpt" "${toy[@]}" --model gpt2:d1 --vocab-size 257 --steps 2 --warmup-steps 0 --out "$work/d1" > /dev/null 2>&1
expect "export" 0 -- "$train_gpt" export "$work/d1" --format llmc --out "$work/m.bin"
expect "import" 0 "state" -- "$train_gpt" import "$work/m.bin" --tokenizer byte --out "$work/imported"
expect "export again" 0 -- "$train_gpt" export "$work/imported" --format llmc --out "$work/m2.bin"
cmp -s "$work/m.bin" "$work/m2.bin" && ok "byte for byte" || not_ok "byte for byte"
expect "start from an imported model" 0 "step 2/2" -- "$train_gpt" "${toy[@]}" --model "$work/imported" --steps 2 --warmup-steps 0 --out "$work/tuned"
