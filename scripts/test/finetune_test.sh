#!/usr/bin/env bash
# The loss mask: only completions are trained on, the mean is over the targets of the whole batch, and
# layouts and splits of the batch change no bit of it.
. scripts/test/tap.sh
export OMP_WAIT_POLICY=passive
train_gpt=${TRAIN_GPT:-build/train_gpt}
: "${PYTHON:=/usr/bin/python3}"
. scripts/test/mpi.sh
toy_ranks

# Prompts of very different lengths, so that micro-batches have from none to all of their targets.
python3 - "$work" << 'PY'
import json, sys
out = {name: open(f"{sys.argv[1]}/{name}.jsonl", "w") for name in ("answers", "questions", "all")}
for i in range(400):
    prompt = f"question {i} " * (i * i % 7) + "?"
    completion = f" {i * 7919 % 10007} and {i}\n" * (1 + i % 3)
    for name, flags in {"answers": (False, True), "questions": (True, False), "all": (True, True)}.items():
        parts = [{"text": t, "train": f} for t, f in zip((prompt, completion), flags)]
        line = {"prompt": prompt, "completion": completion} if name == "answers" else {"parts": parts}
        print(json.dumps(line), file=out[name])
PY
for name in answers questions all; do
    is "tokenize $name" "$train_gpt" tokenize "$work/$name.jsonl" --tokenizer byte --out "$work/$name" --val-fraction 0
done
cmp <(tail -c +1025 "$work/all_train_000000.bin") <(tail -c +1025 "$work/answers_train_000000.bin" | head -c "$(($(stat -c %s "$work/all_train_000000.bin") - 1024))") \
    && ok "the ids are those of the whole text" || not_ok "the ids are those of the whole text"

run=("$train_gpt" --model "$work/toy.json" --seq-len 31 --lr 3e-3 --threads 1 --steps 8 --warmup-steps 2 --save-every 0
    --batch-tokens 372)
masked=(--data "$work/answers_train_*.bin" --val-data "$work/answers_train_*.bin" --val-every 4 --val-batches 3)
is "one rank, 12 micro-batches" "${run[@]}" "${masked[@]}" --micro-batch 1 --out "$work/one"
final=$(state "$work/one"); history "$work/one" > "$work/expected"

# ---- the losses of answers and of questions make up that of everything
loss() { "$train_gpt" eval --model "$work/one" --data "$work/$1_train_*.bin" --seq-len 31 2> "$work/err"; }
is "mean over what is trained on" python3 - "$(loss answers)" "$(loss questions)" "$(loss all)" << 'PY'
import json, sys
a, q, both = map(json.loads, sys.argv[1:])
assert a["tokens"] > 100 and q["tokens"] > 100 and a["tokens"] + q["tokens"] == both["tokens"], (a, q, both)
total = a["val_loss"] * a["tokens"] + q["val_loss"] * q["tokens"]
# Means are rounded to double: far below this.
assert abs(total / both["tokens"] - both["val_loss"]) < 1e-12, (a, q, both)
assert abs(a["val_loss"] - q["val_loss"]) > 1e-3
PY

# ---- a step's loss is the mean over its targets: that of an evaluation of the same samples, all in one step
"$PYTHON" -c 'import json; print(json.dumps({"prompt": "what " * 40, "completion": "this, " * 30}))' > "$work/twelve.jsonl"
is "tokenize 12 samples" "$train_gpt" tokenize "$work/twelve.jsonl" --tokenizer byte --out "$work/twelve" --val-fraction 0
is "one step over all of them" "${run[@]}" --data "$work/twelve_train_*.bin" --val-data "$work/twelve_train_*.bin" --val-every 9 \
    --micro-batch 3 --steps 1 --warmup-steps 1 --out "$work/twelve"
val=$(grep -m 1 -o '"val_loss":[0-9.]*' "$work/twelve/log.jsonl") step=$(grep -m 1 -o '"loss":[0-9.]*' "$work/twelve/log.jsonl")
# Floats of a loss near 5.5 lie 5e-7 apart.
awk -v a="${val#*:}" -v b="${step#*:}" 'BEGIN { exit !(a > 4 && a - b < 1e-6 && b - a < 1e-6) }' &&
    ok "a step's loss is the mean over its targets" || not_ok "a step's loss is the mean over its targets: $val, $step"

# ---- any split of the batch
bad=""
for b in 2 3 6; do
    "${run[@]}" "${masked[@]}" --micro-batch $b --out "$work/b$b" > "$work/log" 2>&1 || cat "$work/log"
    [ "$(grep -c '"loss"' "$work/b$b/log.jsonl")" = 8 ] || bad+=" $b(log)"
    # Micro-batches are added in fixed point, but rows within one in floating point: equal to rounding.
    python3 - "$work/one/log.jsonl" "$work/b$b/log.jsonl" << 'PY' || bad+=" $b(loss)"
import json, sys
a, b = ([json.loads(l)["loss"] for l in open(f) if '"loss"' in l] for f in sys.argv[1:])
assert len(a) == len(b) == 8 and all(abs(x - y) < 1e-4 * x for x, y in zip(a, b)), (a, b)
PY
done
[ -z "$bad" ] && ok "micro-batches of 1, 2, 3 and 6: one curve" || not_ok "micro-batches of 1, 2, 3 and 6: one curve:$bad"

if has_mpi; then
    bad=""
    layouts="2,0 2,3 3,1 4,2"
    for layout in $layouts; do
        launch "${layout%,*}" "${run[@]}" "${masked[@]}" --micro-batch 1 --zero "${layout#*,}" --out "$work/$layout" > "$work/log" 2>&1 || cat "$work/log"
        [ "$(state "$work/$layout")" = "$final" ] || bad+=" $layout(state)"
        history "$work/$layout" | cmp -s - "$work/expected" || bad+=" $layout(log)"
    done
    [ -z "$bad" ] && ok "one curve on ranks,ZeRO $layouts" || not_ok "one curve on ranks,ZeRO $layouts:$bad"
else
    skip "one curve on any layout" "no MPI"
fi

# ---- on a GPU: the CPU's losses; the same bits in any layout and order of streams
cuda=${CUDA_TRAIN_GPT:-${BUILD:-build}/sim/train_gpt}
gpu=("$cuda" "${run[@]:1}" "${masked[@]}" --steps 4 --micro-batch 2 --device cuda)
if [ -x "$cuda" ]; then
    "${run[@]}" "${masked[@]}" --steps 4 --micro-batch 2 --out "$work/cpu4" > "$work/log" 2>&1 || cat "$work/log"
    "${gpu[@]}" --out "$work/gpu" > "$work/log" 2>&1 || cat "$work/log"
    "${gpu[@]}" --dtype bf16 --out "$work/bf16" > "$work/log" 2>&1 || cat "$work/log"
    # As in cuda_test.sh: in fp32 the last digits differ, in bf16 a part in 2^9 / 3.
    for how in "gpu 2e-6" "bf16 6e-3"; do
        is "losses on a GPU are the CPU's, ${how% *}" python3 - "$work/cpu4" "$work/${how% *}" "${how#* }" << 'PY'
import json, sys
a, b = ([json.loads(l) for l in open(f + "/log.jsonl") if "loss" in l] for f in sys.argv[1:3])
share = float(sys.argv[3])
assert len(a) == len(b) == 6
for x, y in zip(a, b):
    for key in ("loss", "val_loss"):
        assert (key in x) == (key in y) and abs(x.get(key, 0) - y.get(key, 0)) <= share * x.get(key, 1), (x, y)
PY
    done
    bad="" final=$(state "$work/gpu")
    CUSIM_SCHED=rand:5 CUSIM_STREAM=rand:5 "${gpu[@]}" --out "$work/order" > "$work/log" 2>&1 || cat "$work/log"
    [ -n "$final" ] && [ "$(state "$work/order")" = "$final" ] || bad+=" order"
    if has_mpi "$cuda"; then
        CUSIM_DEVICES=3 launch 3 "${gpu[@]}" --zero 2 --out "$work/ranks" > "$work/log" 2>&1 || cat "$work/log"
        [ "$(state "$work/ranks")" = "$final" ] || bad+=" ranks"
    fi
    [ -z "$bad" ] && ok "the same bits in any order and on any ranks" || not_ok "the same bits in any order and on any ranks:$bad"
else
    skip "losses on a GPU are the CPU's" "no $cuda"
fi

# ---- a batch without targets changes nothing but what decay does; training goes on
for i in $(seq 1 30); do echo "{\"prompt\": \"only questions, number $i\", \"completion\": \"\"}"; done > "$work/none.jsonl"
is "tokenize prompts alone" "$train_gpt" tokenize "$work/none.jsonl" --tokenizer byte --out "$work/none" --val-fraction 0
expect "nothing to learn from: loss 0, no NaN" 0 "!nan" -- "${run[@]}" --data "$work/none_train_*.bin" --micro-batch 1 --steps 2 --weight-decay 0 \
    --warmup-steps 0 --out "$work/none"
grep -q '"loss":0,' "$work/none/log.jsonl" || grep -q '"loss":0.0,' "$work/none/log.jsonl" && ok "its loss is 0" || { cat "$work/none/log.jsonl"; not_ok "its loss is 0"; }

# ---- fine-tuning: from another run's weights, with a fresh optimizer
expect "from weights that are there" 0 -- "${run[@]}" "${masked[@]}" --micro-batch 1 --model "$work/one" --out "$work/tuned"
val() { grep -o '"val_loss":[0-9.]*' "$1/log.jsonl"; }
[ -n "$(val "$work/one")" ] && [ "$(val "$work/tuned" | head -n 1)" = "$(val "$work/one" | tail -n 1)" ] &&
    ok "it goes on from there" || not_ok "it goes on from there: $(val "$work/one" | tail -n 1), $(val "$work/tuned" | head -n 1)"
