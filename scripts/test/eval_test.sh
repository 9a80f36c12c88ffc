#!/usr/bin/env bash
# eval --task: every task through the command line, the same bytes for any number of ranks and any
# micro-batch; bad files and options are refused by name.
. scripts/test/tap.sh
export OMP_WAIT_POLICY=passive
train_gpt=${TRAIN_GPT:-build/train_gpt}
. scripts/test/mpi.sh

toy_data
# Trained until it knows that "line 1234" goes on with " of": some answers are right.
"$train_gpt" "${toy[@]}" --micro-batch 3 --steps 150 --lr 1e-2 --warmup-steps 0 --save-every 0 --out "$work/m" > "$work/log" 2>&1 || cat "$work/log"

# ---- small sets, made here; the model reads 37 tokens at most, so some lose their beginning
for i in $(seq 1 7); do
    echo "{\"ctx\": \"line $i of\", \"label\": $((i % 4)), \"endings\": [\"$i\", \"two $i\", \"and $((i * i))\", \"x\"]}"
done > "$work/hellaswag.jsonl"
for i in $(seq 1 5); do
    echo "{\"text\": \"line $i of $((i * i)) and $((i * 7919 % 10007)) and so it goes on to $i\"}"
done > "$work/lambada.jsonl"
printf '{"text": "line %s"}\n' "1234 of" "2345 of" "1234 no" >> "$work/lambada.jsonl"
for i in $(seq 1 5); do
    echo "{\"query\": \"Question: $i?\", \"choices\": [\"$i\", \"no\", \"$((i + 1))\"], \"gold\": $((i % 3))}"
done > "$work/arc.jsonl"
for i in $(seq 1 5); do
    echo "{\"sentence\": \"line $i saw line 9 so _ ran\", \"option1\": \"line $i\", \"option2\": \"9\", \"answer\": \"$((i % 2 + 1))\"}"
done > "$work/winogrande.jsonl"
printf '%s\n' '"1, 2?",a,b,c,d,A' 'x?,a,b,c,d,D' 'y?,e,f,g,h,1' > "$work/sums_test.csv"
printf '%s\n' '0?,a,b,c,d,B' '3?,a,b,c,d,C' > "$work/sums_dev.csv"

evaluate() { "$train_gpt" eval --model "$work/m" --tokenizer byte --threads 1 "$@"; }
sets() {  # TASK: its options
    case $1 in
        mmlu) echo --task mmlu --shots 2 --file "$work/sums_test.csv" ;;
        arc) echo --task arc --file "$work/arc.jsonl" "$work/arc.jsonl" ;;
        *) echo --task "$1" --file "$work/$1.jsonl" ;;
    esac
}
for task in hellaswag lambada arc winogrande mmlu; do
    read -r -a options <<< "$(sets $task)"
    evaluate "${options[@]}" > "$work/$task.out" 2> "$work/$task.err" || cat "$work/$task.err"
    bad=""
    for b in 1 3 8; do
        evaluate "${options[@]}" --micro-batch $b 2> "$work/err" | cmp -s - "$work/$task.out" || bad+=" micro-batch:$b"
        [ "$task" = hellaswag ] || [ "${TEST_DEEP:-}" = 1 ] || break
    done
    [ -z "$bad" ] && [ -s "$work/$task.out" ] && ok "$task: one result for every micro-batch" || { cat "$work/err"; not_ok "$task: one result for every micro-batch:$bad"; }
done
is "stdout is lines of JSON, with counts and standard errors" python3 - "$work" << 'PY'
import json, math, sys
def read(task):
    return [json.loads(line) for line in open(f"{sys.argv[1]}/{task}.out")]
for task, keys in {"hellaswag": ["acc", "acc_norm", "acc_llmc"], "lambada": ["acc"], "winogrande": ["acc"],
                   "mmlu": ["acc"]}.items():
    (one,) = read(task)
    n = one["questions"]
    assert one["task"] == task and n == {"hellaswag": 7, "lambada": 8, "mmlu": 3}.get(task, 5), one
    for key in keys:
        p = one[key]
        assert abs(p * n - round(p * n)) < 1e-9
        assert abs(one[key + "_stderr"] - math.sqrt(p * (1 - p) / (n - 1))) < 1e-12
assert read("lambada")[0]["truncated"] == 5 and read("lambada")[0]["perplexity"] > 1
assert read("lambada")[0]["acc"] == 2 / 8, read("lambada")
assert read("mmlu")[0]["shots"] == 2 and read("mmlu")[0]["truncated"] == 3
first, second, both = read("arc")
assert first["acc"] == second["acc"] == both["acc"] and both["questions"] == 10 and both["file"] == "all"
assert first["gold_loss"] == both["gold_loss"] > 0
PY
grep -q "smallest loss a token (llm.c's)" "$work/hellaswag.err" && ok "a table for people on stderr" || not_ok "a table for people on stderr"

# ---- one question has no standard error; files with and without examples have no common number of shots
head -n 1 "$work/arc.jsonl" > "$work/single.jsonl"
evaluate --task arc --file "$work/single.jsonl" > "$work/out" 2> "$work/err"
grep -q '"acc_stderr":null' "$work/out" && grep -q "+- n/a" "$work/err" && ! grep -qi nan "$work/err" && ok "one question: no standard error" || { cat "$work/out" "$work/err"; not_ok "one question: no standard error"; }
cp "$work/sums_test.csv" "$work/lone_test.csv"
cp "$work/sums_test.csv" "$work/five_test.csv"
for i in 1 2 3 4 5; do echo "$i?,a,b,c,d,B"; done > "$work/five_dev.csv"
evaluate --task mmlu --file "$work/five_test.csv" "$work/lone_test.csv" > "$work/out" 2> "$work/err"
is "shots of all files: only where they are the same" python3 - "$work/out" << 'PY'
import json, sys
assert [json.loads(line)["shots"] for line in open(sys.argv[1])] == [5, 0, None]
PY
evaluate --data "$work/d_val_*.bin" --seq-len 31 2> "$work/err" | grep -q '^{"model":.*,"step":.*,"task":"loss","tokens":.*,"val_loss":.*,"perplexity":' && ok "one order of keys" || not_ok "one order of keys"

# ---- ranks
if has_mpi; then
    bad=""
    for task in hellaswag lambada mmlu; do
        read -r -a options <<< "$(sets $task)"
        for ranks in 2 3; do
            launch $ranks "$train_gpt" eval --model "$work/m" --tokenizer byte "${options[@]}" --micro-batch $((4 - ranks)) \
                2> "$work/err" | cmp -s - "$work/$task.out" || bad+=" $task:$ranks"
        done
    done
    [ -z "$bad" ] && ok "one result for any number of ranks" || { cat "$work/err"; not_ok "one result for any number of ranks:$bad"; }
    data=(eval --model "$work/m" --data "$work/d_val_*.bin" --seq-len 31)
    "$train_gpt" "${data[@]}" > "$work/loss1" 2> "$work/err"
    for ranks in 2 3; do launch $ranks "$train_gpt" "${data[@]}" --micro-batch $ranks 2> "$work/err" | cmp -s - "$work/loss1" || bad+=" $ranks"; done
    [ -z "$bad" ] && [ -s "$work/loss1" ] && ok "and one loss on token files" || { cat "$work/err"; not_ok "and one loss on token files:$bad"; }
else
    skip "one result for any number of ranks" "no MPI"
fi

# ---- a GPU: the CPU's answers
cuda=${CUDA_TRAIN_GPT:-${BUILD:-build}/sim/train_gpt}
agrees() {  # CPU'S GPU'S SHARE: lines of JSON; losses may differ by this share, accuracies where it is above 1e-3
    python3 - "$@" << 'PY'
import json, sys
cpu, gpu = ([json.loads(line) for line in open(f)] for f in sys.argv[1:3])
share = float(sys.argv[3])
assert len(cpu) == len(gpu) > 0
for a, b in zip(cpu, gpu):
    assert a.keys() == b.keys()
    for key, x in a.items():
        if key in ("gold_loss", "val_loss"):
            assert abs(x - b[key]) <= share * x, (key, x, b[key])
        elif "perplexity" not in key and (share < 1e-3 or "acc" not in key):
            assert x == b[key], (key, x, b[key])
PY
}
if [ -x "$cuda" ]; then
    head -n 14 "$work/text" > "$work/short"
    "$train_gpt" tokenize "$work/short" --tokenizer byte --val-fraction 0 --out "$work/short" > "$work/log" 2>&1
    bad="" data=(--data "$work/short_train_*.bin" --seq-len 29)
    evaluate "${data[@]}" > "$work/loss.out" 2> "$work/err"
    for task in hellaswag lambada mmlu loss; do
        [ $task = loss ] && options=("${data[@]}") || read -r -a options <<< "$(sets $task)"
        device() { "$cuda" eval --model "$work/m" --tokenizer byte --device cuda "${options[@]}" "$@" 2> "$work/err"; }
        # As in cuda_test.sh: in fp32 the last digits differ, in bf16 a part in 2^9 / 3.
        device > "$work/gpu.out" && agrees "$work/$task.out" "$work/gpu.out" 2e-6 || bad+=" $task:fp32"
        device --dtype bf16 > "$work/bf16.out" && agrees "$work/$task.out" "$work/bf16.out" 6e-3 || bad+=" $task:bf16"
        [ $task = hellaswag ] || [ $task = loss ] || continue
        CUSIM_SCHED=rand:3 CUSIM_STREAM=rand:3 device | cmp -s - "$work/gpu.out" || bad+=" $task:order"
        has_mpi "$cuda" || continue
        [ $task = loss ] && options+=(--micro-batch 3)
        CUSIM_DEVICES=3 launch 3 "$cuda" eval --model "$work/m" --tokenizer byte --device cuda "${options[@]}" 2> "$work/err" |
            cmp -s - "$work/gpu.out" || bad+=" $task:ranks"
    done
    [ -z "$bad" ] && ok "a GPU answers as the CPU does" || { cat "$work/err"; not_ok "a GPU answers as the CPU does:$bad"; }
else
    skip "a GPU answers as the CPU does" "no $cuda"
fi

# ---- llm.c's file holds the same questions as ids
python3 - "$work" << 'PY'
import json, struct, sys
words, n = [], 0
for line in open(f"{sys.argv[1]}/hellaswag.jsonl"):
    q = json.loads(line)
    ids = [list(q["ctx"].encode())] + [list((" " + e).encode()) for e in q["endings"]]
    body = [n, q["label"], 4] + [w for part in ids for w in [len(part)] + part]
    words += [65535, 2 * (len(body) + 2)] + body
    n += 1
head = struct.pack("<256i", *([20240522, 1, n, 200] + [0] * 252))
open(f"{sys.argv[1]}/hellaswag.bin", "wb").write(head + struct.pack(f"<{len(words)}H", *words))
PY
evaluate --task hellaswag --file "$work/hellaswag.bin" 2> "$work/err" | sed "s/hellaswag.bin/hellaswag.jsonl/" | cmp - "$work/hellaswag.out" \
    && ok "llm.c's file: the same result" || { cat "$work/err"; not_ok "llm.c's file: the same result"; }

# ---- refused
expect "no --file" 2 "--file is missing" -- evaluate --task arc
expect "no --data" 2 "--data is missing" -- evaluate
expect "a file without its task" 2 "--file without its --task" -- evaluate --data x --file y
expect "an unknown task" 2 "hellaswag" -- evaluate --task helaswag --file x
expect "--shots elsewhere" 2 "mmlu alone" -- evaluate --task arc --shots 1 --file "$work/arc.jsonl"
expect "no such file" 2 "cannot open $work/none" -- evaluate --task arc --file "$work/none"
expect "a folder" 2 "a directory" -- evaluate --task arc --file "$work"
expect "another task's file" 3 "arc.jsonl:1" "of the --task" -- evaluate --task hellaswag --file "$work/arc.jsonl"
expect "no examples" 2 "no examples for --shots" -- evaluate --task mmlu --shots 1 --file "$work/sums_dev.csv"
expect "a sequence the model cannot read" 2 "1 to 37" -- evaluate --task arc --file "$work/arc.jsonl" --seq-len 38
expect "an answer longer than the model" 2 "does not fit" "question 1" -- evaluate --task hellaswag --file "$work/hellaswag.jsonl" --seq-len 1
head -c 1100 "$work/hellaswag.bin" > "$work/cut.bin"
expect "a cut file" 3 "cut.bin" -- evaluate --task hellaswag --file "$work/cut.bin"
expect "llm.c's file for another task" 2 "--task hellaswag" -- evaluate --task arc --file "$work/hellaswag.bin"
cp "$work/hellaswag.bin" "$work/ids.bin"; printf '\377\177' | dd of="$work/ids.bin" bs=1 seek=1036 conv=notrunc 2> "$work/err"
expect "ids of another vocabulary" 3 "id 32767" "ids below 257" -- evaluate --task hellaswag --file "$work/ids.bin"
for i in $(seq 1 300); do echo "line $i of $((i * i))"; done > "$work/more"
is "a larger vocabulary" "$train_gpt" train-bpe "$work/more" --vocab-size 270 --out "$work/bpe.json"
expect "a tokenizer of another model" 2 "more tokens than the model" -- evaluate --tokenizer "$work/bpe.json" --task arc --file "$work/arc.jsonl"
expect "and for generate" 2 "more tokens than the model; found 270; expected at most 257" -- \
    "$train_gpt" generate --model "$work/m" --tokenizer "$work/bpe.json" --prompt line --tokens 2
is "a model without tokenizer" "$train_gpt" export "$work/m" --format hf --out "$work/hf"
rm -f "$work"/hf/tokenizer* "$work"/hf/vocab.json
is "and imported" "$train_gpt" import "$work/hf" --out "$work/bare"
expect "no tokenizer" 2 "carries no tokenizer" -- "$train_gpt" eval --model "$work/bare" --task arc --file "$work/arc.jsonl"
expect "llm.c's file does without" 0 '"acc_norm":null' '"acc_llmc"' -- "$train_gpt" eval --model "$work/bare" --task hellaswag --file "$work/hellaswag.bin"

# ---- published files, by a trained model
folder=${TEST_DATA:-data/test}
if [ ! -e "$folder/eval/hellaswag_val_first400.jsonl" ] || [ ! -e "$folder/stories260K/stories260K.bin" ] ||
    ! "$train_gpt" import "$folder/stories260K/stories260K.bin" --tokenizer "$folder/stories260K/tok512.bin" --out "$work/s" > "$work/log" 2>&1; then
    skip "published sets" "no $folder/eval or stories260K"
    exit
fi
for task in hellaswag:hellaswag_val_first400 lambada:lambada_openai_test arc:arc_easy_test winogrande:winogrande_val; do
    head -n 12 "$folder/eval/${task#*:}.jsonl" > "$work/first.jsonl"
    expect "${task%:*} as published" 0 '"questions":12' -- "$train_gpt" eval --model "$work/s" --task "${task%:*}" --file "$work/first.jsonl"
done
expect "mmlu as published" 0 '"questions":100' '"shots":5' -- "$train_gpt" eval --model "$work/s" --task mmlu --seq-len 256 \
    --file "$folder/mmlu/abstract_algebra_test.csv"
