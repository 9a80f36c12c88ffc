#!/usr/bin/env bash
# The program as a user meets it: every bad input gets one clear error and the documented exit code,
# and nothing is lost; options of one word each do what --help says.
. scripts/test/tap.sh
gpt=${TRAIN_GPT:?"the program to test"}
export OMP_NUM_THREADS=1
tiny=$work/tiny.json
echo '{"model_type":"gpt2","n_layer":1,"n_head":1,"n_embd":8,"n_positions":16,"vocab_size":257}' > "$tiny"
seq 1 2000 > "$work/text.txt"
expect "tokenize" 0 "8,009 tokens" -- \
    "$gpt" tokenize "$work/text.txt" --tokenizer byte --val-fraction 0.1 --out "$work/b"
data=$work/b_train_000000.bin
cp "$data" "$work/lone.bin"  # token files from elsewhere, without a note beside them
train() { "$gpt" train --model "$tiny" --micro-batch 2 --seq-len 16 --steps 3 --out "$work/o" "$@"; }
plan() { "$gpt" plan "$@"; }
untouched() { is "$1: --out was not made" test ! -e "$work/o"; }

# ---- command line
expect "no arguments" 2 "error:" "make quickstart" -- "$gpt"
expect "unknown option" 2 "--stpes" "did you mean --steps?" -- train --data "$data" --stpes 3
expect "unknown command" 2 "did you mean generate?" -- "$gpt" generat
expect "option of another command" 2 "train_gpt generate" -- train --data "$data" --top-k 3
expect "missing value" 2 "--steps needs a value" -- "$gpt" --data "$data" --steps
for bad in "--steps 0" "--steps -1" "--micro-batch 0" "--micro-batch -2" "--seq-len 0" "--lr 0" \
    "--lr -1" "--lr nan" "--batch-tokens 0" "--batch-tokens -32" "--keep 1" "--threads 0" \
    "--grad-clip -1" "--vocab-size -1" "--zero 4" "--tp 2" "--pp 2" "--schedule cos"; do
    # shellcheck disable=SC2086  # two words
    expect "bad value $bad" 2 "${bad% *}" "expected" -- train --data "$data" $bad
done
expect "16 bits on a CPU" 2 "--dtype bf16 needs a GPU" "hint: --dtype fp32" -- train --data "$data" --dtype bf16 --device cpu
if "$gpt" --version | grep -q '^CUDA *no'; then
    for command in "train --data $data" plan; do
        # shellcheck disable=SC2086  # words
        expect "--device cuda without CUDA: ${command% --*}" 2 "--device cuda" "built without CUDA" "make CUDA=1" -- $command --device cuda
        # shellcheck disable=SC2086
        expect "--dtype bf16 without CUDA: ${command% --*}" 2 "--dtype bf16 needs a GPU" "built without CUDA" "hint: --dtype fp32" -- $command --dtype bf16
    done
else
    skip "--device cuda without CUDA" "a build with CUDA"
fi
expect "batch that does not divide" 2 "micro-batch 2 x seq-len 16 = 32" "96 or 128" -- \
    train --data "$data" --batch-tokens 100
expect "longer than the model" 2 "--seq-len" "found 17" "at most 16" -- train --data "$data" --seq-len 17
expect "unknown preset" 2 "gpt2:124" "did you mean 'gpt2:124M'?" -- \
    "$gpt" --model gpt2:124 --data "$data" --out "$work/o"
printf 'steps = 2\nstesp = 3\n' > "$work/bad.toml"
expect "config with an unknown key" 2 "stesp" "did you mean steps?" -- \
    train --data "$data" --config "$work/bad.toml"
expect "config that is not there" 2 "none.toml" -- train --data "$data" --config "$work/none.toml"
untouched "command line"

# ---- token files
expect "no token files" 2 "none_*.bin" "train_gpt tokenize" -- train --data "$work/none_*.bin"
: > "$work/empty.bin"
expect "empty token file" 3 "empty.bin" "0 bytes" -- train --data "$work/empty.bin"
head -c 3000 "$work/text.txt" > "$work/garbage.bin"
expect "garbage: magic found and expected" 3 "garbage.bin" "found magic" "20240520" -- \
    train --data "$work/garbage.bin"
head -c 3000 "$data" > "$work/cut.bin"
expect "truncated" 3 "cut.bin" "found a size of 3000" "expected 17042" -- train --data "$work/cut.bin"
head -c 1030 "$data" > "$work/header.bin"
expect "hardly more than a header" 3 "header.bin" "1030" -- train --data "$work/header.bin"
expect "ids beyond the vocabulary" 3 "lone.bin" "id 256" "offset 1024" "below 40" -- \
    train --data "$work/lone.bin" --vocab-size 40
expect "a damaged file among good ones" 3 "cut.bin" -- train --data "$work/lone.bin" "$work/cut.bin"
expect "damaged validation data" 3 "cut.bin" -- train --data "$data" --val-data "$work/cut.bin"
untouched "token files"

# ---- output directory
expect "a place that cannot be written" 2 "/proc/x" -- train --data "$data" --out /proc/x
expect "--out is a file" 2 "text.txt" -- train --data "$data" --out "$work/text.txt"
mkdir "$work/foreign"
echo mine > "$work/foreign/diary.txt"
expect "somebody else's directory" 2 "diary.txt" -- train --data "$data" --out "$work/foreign"
is "is left as it was" test "$(ls -A "$work/foreign")" = diary.txt

# ---- a run, and what may not go on from it
expect "train" 0 "step 3/3" "saved" -- train --data "$data" --val-data "$work/b_val_*.bin"
is "log.jsonl has its lines" test "$(grep -c '"loss":' "$work/o/log.jsonl")" = 3
sed 's/"n_embd":8/"n_embd":16/' "$tiny" > "$work/wide.json"
expect "checkpoint of another model" 2 "another model" "n_embd" -- \
    train --data "$data" --model "$work/wide.json" --steps 5
expect "verify" 0 "state " -- "$gpt" verify "$work/o/ckpt/step-0000000003"
expect "verify: a file" 2 "no checkpoint" "a file" -- "$gpt" verify "$gpt"
mkdir "$work/empty"
expect "verify: another directory" 2 "no checkpoint" "another directory" -- "$gpt" verify "$work/empty"
expect "verify: nothing there" 2 "nowhere" -- "$gpt" verify "$work/nowhere"
cp -r "$work/o" "$work/damaged"
printf 'X' | dd of="$work/damaged/ckpt/step-0000000003/shards/rank-00000.h5" bs=1 seek=5000 \
    conv=notrunc 2> /dev/null
expect "verify: one byte changed" 3 "rank-00000.h5" -- "$gpt" verify "$work/damaged/ckpt/step-0000000003"
expect "resume: nothing valid" 3 -- train --data "$data" --out "$work/damaged" --steps 5
expect "generate" 0 -- "$gpt" generate --model "$work/o" --prompt 1 --tokens 5
is "the text alone is on stdout" test "$(head -c 1 "$work/.out")" = 1
expect "generate: nothing there" 2 "nowhere" -- "$gpt" generate --model "$work/nowhere"
expect "eval" 0 "val_loss" -- "$gpt" eval --model "$work/o" --data "$work/b_val_*.bin"
expect "plan" 0 "total" -- "$gpt" plan --model gpt2:1558M
# The plan's bound holds for a checkpoint with a large tokenizer.
seq 1 60000 > "$work/numbers"
is "a large tokenizer" "$gpt" train-bpe "$work/numbers" --vocab-size 4000 --out "$work/large.json"
is "data of it" "$gpt" tokenize "$work/text.txt" --tokenizer "$work/large.json" --out "$work/l"
run=(--model gpt2:d1 --data "$work/l_train_*.bin" --seq-len 16 --micro-batch 1 --steps 1 --out "$work/lo")
planned=$("$gpt" plan "${run[@]}" | sed -n 's/^total one checkpoint on disk[^0-9]* \([0-9,]*\) .*/\1/p' | tr -d ,)
"$gpt" "${run[@]}" > "$work/log" 2>&1 || cat "$work/log"
written=$(find "$work/lo/ckpt/step-0000000001" -type f -printf '%s\n' | awk '{ n += $1 } END { print n + 0 }')
if [ "$written" -gt 1000000 ] && [ "$planned" -ge "$written" ] && [ $((planned - written)) -lt 200000 ]; then
    ok "one checkpoint on disk: $written of at most $planned"
else
    not_ok "one checkpoint on disk: $written of at most $planned"
fi
expect "export and import" 0 -- "$gpt" export "$work/o/ckpt/step-0000000003" --format llmc --out "$work/x.bin"
expect "import" 0 "state " -- "$gpt" import "$work/x.bin" --out "$work/imported"
expect "import of something else" 3 "text.txt" "magic" -- "$gpt" import "$work/text.txt" --out "$work/i2"
expect "config file" 0 "step 2/2" -- "$gpt" --config <(printf 'model = "%s"\nmicro-batch = 2\nseq-len = 16\nsteps = 2\nout = "%s/c"\ndata = "%s"\n' "$tiny" "$work" "$data")
expect "non-finite policy" 5 "skipped" -- train --data "$data" --out "$work/nan" --steps 50 \
    --lr 1e38 --grad-clip 0 --weight-decay 0 --warmup-steps 0 --max-skipped 2

# ---- while one runs
"$gpt" train --model "$tiny" --micro-batch 2 --seq-len 16 --steps 100000000 --save-every 0 --data "$data" \
    --out "$work/long" > "$work/long.out" 2>&1 &
first=$!
for _ in $(seq 300); do grep -q '^step' "$work/long.out" && break; sleep 0.1; done
expect "a second run on the same --out" 2 "$work/long" -- train --data "$data" --out "$work/long"
is "the first goes on" kill -0 $first
kill -TERM $first
wait $first
is "SIGTERM: exit code 7" test $? = 7
is "SIGTERM: saved" grep -q '"event":"save"' "$work/long/log.jsonl"

# ---- figures of one, and what the table says the processor does
"$gpt" tokenize "$work/text.txt" --tokenizer byte --val-fraction 0 --out "$work/single" > "$work/.tok" 2>&1
expect "one of each" 0 "1 layer," "1 head," "1 shard," "1 thread," "matrix products: own (" "on 1 rank" '!1 layers' '!1 heads' -- \
    train --data "$work/single_train_*.bin" --threads 1 --out "$work/single"
expect "one of each in a plan, long numbers in groups" 0 "1 layer, width 8, 1 head," "32 tokens = 1 x 2 x 16 on 1 rank" -- \
    "$gpt" plan --model "$tiny" --micro-batch 2 --seq-len 16
expect "long numbers of a plan" 0 "124,439,808 parameters, 12 layers" "vocabulary 50,257 (50,304 with padding)" -- "$gpt" plan --model gpt2:124M

# ---- a run that goes on in other micro-batches
expect "resume" 0 "resumed at step 3" "step-0000000003 was trained with other options: --steps 3 -> 4; from here on" -- train --data "$data" --steps 4
expect "the same command again" 0 "complete at step 4" '!warning' -- train --data "$data" --steps 4
expect "another --micro-batch than the run began with" 0 "options: --steps 4 -> 5, --micro-batch 2 -> 1; from" -- \
    train --data "$data" --steps 5 --micro-batch 1 --batch-tokens 32
expect "and another --batch-tokens" 0 "options: --steps 5 -> 6, --batch-tokens 32 -> 64; from" -- \
    train --data "$data" --steps 6 --micro-batch 1 --batch-tokens 64
cp -r "$work/o" "$work/elsewhere"
mkdir "$work/moved"; cp "$work"/b_* "$work/moved"
expect "the same data in another place" 0 "complete" '!warning' -- train --data "$work/moved/b_train_*.bin" --steps 6 --micro-batch 1 \
    --batch-tokens 64 --out "$work/elsewhere"
"$gpt" tokenize "$work/text.txt" --tokenizer byte --val-fraction 0.5 --out "$work/half" > "$work/.tok" 2>&1
expect "other data, another --lr" 0 "with other options: --lr 6e-04 -> 0.001, --data 1 shard, " " -> 1 shard, " -- \
    train --data "$work/half_train_*.bin" --steps 6 --micro-batch 1 --batch-tokens 64 --lr 1e-3 --out "$work/elsewhere"

# ---- a run that starts over where another has been
cp -r "$work/o" "$work/again"
expect "--resume never" 0 "renamed to step-0000000006.aside" "from the start" "step 1/2" -- \
    train --data "$data" --out "$work/again" --steps 2 --resume never
is "--help says so" grep -q "never: start over; .* is renamed to .aside" <("$gpt" --help | tr -s ' \n' ' ')

# ---- exports that fail leave nothing, and say the right thing
newest=$work/o/ckpt/step-0000000006
limited() { (ulimit -f 8; "$gpt" export "$newest" "$@"); }  # files of 8 KiB
expect "export into a folder" 2 "a directory" '!disk full' -- "$gpt" export "$newest" --format llmc --out "$work/empty"
expect "export, llm.c's: too large a file" 4 "File too large" "untouched" '!disk full' -- limited --format llmc --out "$work/e.bin"
is "leaves nothing" test ! -e "$work/e.bin" -a ! -e "$work/e.bin.tmp"
expect "export, a folder: too large a file" 4 "File too large" -- limited --format hf --out "$work/e"
is "leaves nothing in it" test -z "$(ls -A "$work/e")"
expect "and can be tried again" 0 -- "$gpt" export "$newest" --format hf --out "$work/e"

# ---- a full disk: 400 kB for a run that wants to save more
full() {
    # shellcheck disable=SC2016  # the inner shell expands
    unshare -rm bash -c 'mkdir -p "$1/full" && mount -t tmpfs -o size=400k tmpfs "$1/full" || exit 99
        shift; "$@"' full "$work" "$gpt" train --model "$work/wide.json" --vocab-size 2000 --micro-batch 2 \
        --seq-len 16 --steps 4 --save-every 2 --data "$data" --out "$work/full/run"
}
if unshare -rm true 2> /dev/null; then
    expect "full disk: a save fails and training goes on, the last one fails and says so" 4 \
        "training goes on" "step 4/4" "step 4 could not be saved" "hint" -- full
else
    skip "full disk" "no user namespaces here"
fi

# ---- the console
expect "help" 0 "Usage: train_gpt" "--micro-batch N" "Exit codes" -- "$gpt" --help
expect "version" 0 "compiler" "flags" "CUDA" "HDF5" "BLAS" "MPI" -- "$gpt" --version
if command -v script > /dev/null; then
    tty_train() { TERM=xterm script -qec "env $1 '$gpt' train --model '$tiny' --micro-batch 2 --seq-len 16 --steps 3 --data '$data' --val-data '$work/b_val_*.bin' --out '$work/$2'" /dev/null; }
    expect "a live line and colours on a terminal" 0 "training [" $'\033[32m' -- tty_train A=1 tty1
    expect "FORCE_COLOR" 0 $'\033[32m' '!'$'\033[K' -- env FORCE_COLOR=1 "$gpt" train --model "$tiny" --micro-batch 2 --seq-len 16 --steps 3 --data "$data" --val-data "$work/b_val_*.bin" --out "$work/forced"
    expect "NO_COLOR" 0 "training [" '!'$'\033[32m' -- tty_train NO_COLOR=1 tty2
else
    skip "terminal" "script is not installed"
fi
expect "plain lines in a file" 0 "step 3/3" '!'$'\033' "!training [" -- train --data "$data" --out "$work/plain"
