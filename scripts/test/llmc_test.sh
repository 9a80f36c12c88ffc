#!/usr/bin/env bash
# llm.c's model files: a run goes on from one as from the checkpoint that it was written from, and what
# it starts with is what the file holds.
. scripts/test/tap.sh
. scripts/test/toy.sh
train_gpt=${TRAIN_GPT:-build/train_gpt}
toy_data
for word in layer:2 head:3 embd:15 positions:37; do sizes+="\"n_${word%:*}\": ${word#*:}, "; done
echo "{\"model_type\": \"gpt2\", ${sizes}\"vocab_size\": 257}" > "$work/gpt.json"
train=("$train_gpt" "${toy[@]}" --model)
"${train[@]}" "$work/gpt.json" --steps 20 --warmup-steps 2 --lr 1e-2 --out "$work/a" > "$work/log" 2>&1 || cat "$work/log"
is "version 3" "$train_gpt" export "$work/a" --format llmc --out "$work/v3.bin"
is "version 5" "$train_gpt" export "$work/a" --format llmc --dtype bf16 --out "$work/v5.bin"
val() { "$train_gpt" eval --model "$1" --data "$work/d_val_*.bin" --seq-len 31 2> /dev/null | sed -E 's/.*"val_loss":([^,}]*).*/\1/'; }
near() { awk -v a="$1" -v b="$2" -v most="$3" 'BEGIN { exit !(a > 1 && a - b <= most && b - a <= most) }'; }
first() { grep -m 1 -o '"loss":[0-9.e+-]*' "$1/log.jsonl"; }

# fp32 keeps every bit: the file is evaluated and trained as the checkpoint is.
[ "$(val "$work/v3.bin")" = "$(val "$work/a")" ] && ok "version 3: the same loss" || not_ok "version 3: the same loss"
for from in a v3.bin; do
    "${train[@]}" "$work/$from" --steps 7 --warmup-steps 1 --out "$work/from-$from" > "$work/log" 2>&1 || cat "$work/log"
done
state=$(state "$work/from-a")
[ -n "$state" ] && [ "$(state "$work/from-v3.bin")" = "$state" ] &&
    [ "$(history "$work/from-v3.bin")" = "$(history "$work/from-a")" ] &&
    ok "version 3: goes on bit for bit" || not_ok "version 3: goes on bit for bit"
is "import" "$train_gpt" import "$work/v5.bin" --tokenizer byte --out "$work/in5"
# A weight is rounded by 2^-9 of itself: of a loss near 3 that is a few thousandths.
near "$(val "$work/in5")" "$(val "$work/a")" 0.01 && ok "version 5: a loss that is near" || not_ok "version 5: a loss that is near"
for from in in5 v5.bin; do
    "${train[@]}" "$work/$from" --steps 7 --warmup-steps 1 --out "$work/from-$from" > "$work/log" 2>&1 || cat "$work/log"
done
[ -n "$(state "$work/from-in5")" ] && [ "$(state "$work/from-v5.bin")" = "$(state "$work/from-in5")" ] &&
    ok "version 5: from the file as from the imported model" || not_ok "version 5: from the file as from the imported model"
near "$(first "$work/from-v5.bin" | cut -d: -f2)" "$(first "$work/from-a" | cut -d: -f2)" 0.02 &&
    ok "version 5: the first step's loss is near" || not_ok "version 5: the first step's loss is near"
expect "what is no model file" 3 "d_train_000000.bin" -- "${train[@]}" "$work/d_train_000000.bin" --steps 1 --out "$work/no"
