#!/usr/bin/env bash
# A trained LLaMA of llama2.c, through the command line: imported, it tells its known story; trained
# on, saved and resumed like any other model.
. scripts/test/tap.sh
train_gpt=${TRAIN_GPT:-build/train_gpt}
folder=${TEST_DATA:-data/test}/stories260K
if [ ! -e "$folder/stories260K.bin" ]; then
    skip "stories260K" "no $folder (data/fetch_test_data.sh brings it)"
    exit
fi
if ! "$train_gpt" import "$folder/stories260K.bin" --tokenizer "$folder/tok512.bin" --out "$work/s" > "$work/import" 2>&1; then
    cat "$work/import"
    grep -q "has no sentencepiece" "$work/import" && skip "stories260K" "built without sentencepiece" || not_ok "import"
    exit
fi
ok "import"
"$train_gpt" generate --model "$work/s" --prompt "" --tokens 256 --temperature 0 > "$work/story" 2> "$work/err"
cmp "$work/story" "$folder/expected_t0_n256.txt" && ok "the known story, byte for byte" || { cat "$work/err"; not_ok "the known story, byte for byte"; }

for i in $(seq 1 300); do echo "Once upon a time there was a dog number $i. He was $((i * 7919 % 101)) years old."; done > "$work/text"
is "tokenize" "$train_gpt" tokenize "$work/text" --tokenizer "$folder/tok512.bin" --out "$work/d" --val-fraction 0.1
run=("$train_gpt" --model "$work/s" --data "$work/d_train_*.bin" --val-data "$work/d_val_*.bin" --seq-len 31
    --micro-batch 3 --batch-tokens 186 --lr 1e-3 --warmup-steps 2 --steps 12 --save-every 5 --keep 9)
"${run[@]}" --out "$work/a" > "$work/log" 2>&1 || cat "$work/log"
state=$("$train_gpt" verify "$work/a")
first=$(grep -m 1 -o '"loss":[0-9.]*' "$work/a/log.jsonl"); last=$(grep '"loss"' "$work/a/log.jsonl" | tail -n 1 | grep -o '"loss":[0-9.]*')
awk -v a="${first#*:}" -v b="${last#*:}" 'BEGIN { exit !(b < a - 0.3) }' && ok "training goes on from it: $first to $last" || not_ok "training goes on from it: $first to $last"
"${run[@]}" --out "$work/b" --resume "$work/a/ckpt/step-0000000005" --save-every 0 > "$work/log" 2>&1 || cat "$work/log"
[ "$("$train_gpt" verify "$work/b")" = "$state" ] && ok "resumed at step 5: the same state" || not_ok "resumed at step 5: the same state"
for how in "--recompute selective" "--recompute block" "--threads 1"; do
    # shellcheck disable=SC2086
    "${run[@]}" --out "$work/c" --resume never $how > "$work/log" 2>&1 || cat "$work/log"
    [ "$("$train_gpt" verify "$work/c")" = "$state" ] && ok "same state with $how" || not_ok "same state with $how"
    rm -rf "$work/c"
done
expect "eval" 0 '"val_loss"' -- "$train_gpt" eval --model "$work/a" --data "$work/d_val_*.bin" --seq-len 31
expect "no llm.c model file for a LLaMA" 2 "LLaMA" -- "$train_gpt" export "$work/s" --format llmc --out "$work/m.bin"

# Out as a Hugging Face folder, with the tokenizer's own file, and back: the rows of q and k in another order.
is "export" "$train_gpt" export "$work/s" --format hf --out "$work/hf"
is "import again" "$train_gpt" import "$work/hf" --out "$work/back"
for from in hf back; do
    "$train_gpt" generate --model "$work/$from" --prompt "" --tokens 256 --temperature 0 > "$work/story" 2> "$work/err"
    cmp "$work/story" "$folder/expected_t0_n256.txt" && ok "$from tells the known story" || { cat "$work/err"; not_ok "$from tells the known story"; }
done
is "a folder that has only a tokenizer.model" "$train_gpt" tokenize "$work/text" --tokenizer "$work/hf" --out "$work/dh" --val-fraction 0.1
cmp -s "$work/dh_train_000000.bin" "$work/d_train_000000.bin" && ok "gives the same ids" || not_ok "gives the same ids"
expect "the file itself as a model" 0 '"val_loss"' -- "$train_gpt" eval --model "$folder/stories260K.bin" --data "$work/d_val_*.bin" --seq-len 31

head -c 999 "$folder/stories260K.bin" > "$work/cut.bin"
expect "a cut model file" 3 "wrong size" -- "$train_gpt" import "$work/cut.bin" --out "$work/no"
expect "an unknown field that changes the maths" 2 "sliding_window" -- bash -c "echo '{\"model_type\": \"llama\",
    \"sliding_window\": 7}' > '$work/c.json'; exec '$train_gpt' plan --model '$work/c.json'"
expect "plan of a preset" 0 "8,030,261,248 parameters" -- "$train_gpt" plan --model llama:3.1-8B --micro-batch 1 --seq-len 8
[ ! -e "$work/no" ] && ok "nothing was written by what was refused" || not_ok "nothing was written by what was refused"
