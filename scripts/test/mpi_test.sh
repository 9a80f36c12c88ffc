#!/usr/bin/env bash
# Many ranks under mpirun: right collectives, one curve, checkpoints of any layout in any layout, and
# ranks that end together whatever happens to one of them.
. scripts/test/tap.sh
export OMP_WAIT_POLICY=passive
train_gpt=${TRAIN_GPT:-build/train_gpt}
. scripts/test/mpi.sh
needs_mpi "many ranks"

toy_ranks
toy+=(--steps 20 --val-every 10 --val-batches 2)
is "one rank, 12 micro-batches a step" "$train_gpt" "${toy[@]}" --out "$work/one" --save-every 10
final=$(state "$work/one")
middle=$(state "$work/one/ckpt/step-0000000010")
history "$work/one" > "$work/expected"
# 101 samples for what is about samples and epochs.
python3 - "$work/d_train_000000.bin" "$work/small.bin" << 'EOF'
import struct, sys
ids = open(sys.argv[1], "rb").read()[1024:][:2 * (101 * 31 + 1)]
open(sys.argv[2], "wb").write(struct.pack("<256i", 20240520, 1, len(ids) // 2, *[0] * 253) + ids)
EOF
run=("$train_gpt" "${toy[@]}" --out "$work/no")
# Rank 1 gets other words at the end of its command line.
differ() { echo 'if [ $OMPI_COMM_WORLD_RANK = 1 ]; then exec "$@" '"$1"'; fi; exec "$@"'; }
run_layout() {  # RANKS,ZERO OUT OPTIONS...
    local layout=$1 out=$2; shift 2
    launch "${layout%,*}" "$train_gpt" "${toy[@]}" --zero "${layout#*,}" --out "$out" "$@" > "$work/out" 2> "$work/err" \
        || { tail -n 5 "$work/err"; bad+=" $layout(exit)"; }
}

# ---- right collectives
expect "selftest-comm" 0 "values: right" "all-reduce, the library's" -- launch 2 "$train_gpt" selftest-comm --max-mb 1
expect "selftest-comm on 5 ranks" 0 "values: right" -- launch 5 "$train_gpt" selftest-comm --max-mb 0
expect "srun without a process manager that MPI knows" 2 "do not know each other" "srun --mpi=pmix" -- \
    env SLURM_STEP_NUM_TASKS=2 "$train_gpt" selftest-comm
expect "selftest-comm on one" 0 "values: right" "not started by mpirun" -- "$train_gpt" selftest-comm

# ---- any layout: the same log, the same state
layouts="1,3 2,0 2,1 2,2 2,3 3,1 4,2 4,3 5,1 5,3"  # 5 do not divide 12
[ "${TEST_DEEP:-}" = 1 ] && layouts=$(echo {1..5},{0..3})
bad=""
for layout in $layouts; do
    out=$work/layout-$layout
    run_layout "$layout" "$out" --save-every 10 --bucket-mb 0.007
    [ "$(state "$out")" = "$final" ] || bad+=" $layout(state)"
    [ "$(state "$out/ckpt/step-0000000010")" = "$middle" ] || bad+=" $layout(middle)"
    history "$out" | cmp -s - "$work/expected" || bad+=" $layout(log)"
    [ "$(find "$out"/ckpt/step-0000000020/shards -name 'rank-*.h5' | wc -l)" = "${layout%,*}" ] || bad+=" $layout(files)"
    enough && break
done
[ -z "$bad" ] && ok "one curve on: $layouts" || { echo "differs:$bad"; not_ok "one curve on: $layouts"; }

# ---- from any layout's checkpoint in any layout: the next steps are the same
pairs="2,1:3,3 3,1:2,2 4,3:1,0 2,0:4,2 5,1:2,1 4,2:5,3"
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

# ---- 16 bits on the way: stages 0 and 1 round the same numbers, 2 and 3 do; fp32 rounds none
bad=""
for layout in 3,0 3,1 2,2 2,3; do
    for wire in bf16 fp16; do
        run_layout "$layout" "$work/$wire-$layout" --save-every 0 --steps 6 --reduction fast --wire $wire --bucket-mb 0.007
    done
done
run_layout 3,0 "$work/fp32-3,0" --save-every 0 --steps 6 --reduction fast --bucket-mb 0.007
for wire in bf16 fp16; do
    for pair in "3,0 3,1" "2,2 2,3"; do
        # shellcheck disable=SC2086  # two words
        set -- $pair
        [ -n "$(state "$work/$wire-$1")" ] && [ "$(state "$work/$wire-$1")" = "$(state "$work/$wire-$2")" ] || bad+=" $wire:$1,$2"
    done
    [ "$(state "$work/$wire-3,0")" != "$(state "$work/fp32-3,0")" ] || bad+=" $wire:fp32"
done
[ -z "$bad" ] && ok "--wire: the bits do not depend on the stage" || { echo "differs:$bad"; not_ok "--wire: the bits do not depend on the stage"; }
# Rounding to 8 bits moves the loss of 6 steps by little: a gradient off by 2^-8 turns an update of at
# most lr by as much, so 6 steps move a weight by less than 6 * 2^-8 of what they move it at all.
lost() { grep '"loss"' "$1/log.jsonl" | sed -E 's/.*"loss":([0-9.e+-]+).*/\1/' | paste -sd' '; }
echo "$(lost "$work/fp32-3,0") $(lost "$work/bf16-3,0")" | awk '{
    learnt = $1 - $6; d = $12 - $6; if (d < 0) d = -d
    exit !(NF == 12 && learnt > 0 && d < 6 / 256 * learnt) }' && ok "--wire bf16: the curve of fp32, nearly" \
    || { lost "$work/fp32-3,0"; lost "$work/bf16-3,0"; not_ok "--wire bf16: the curve of fp32, nearly"; }
expect "--wire bf16 in canonical mode" 2 "--reduction fast" "the number of ranks" -- \
    "$train_gpt" "${toy[@]}" --wire bf16 --out "$work/no"

# ---- what is said of a layout
run_layout 2,2 "$work/planned" --save-every 0 --bucket-mb 0.007
grep -q '"comm_exposed_ms"' "$work/planned/log.jsonl" && ok "the log has hidden and exposed communication" \
    || not_ok "the log has hidden and exposed communication"
# The table at the start names what is held, and the plan says the same.
memory_of() { awk '/^ *memory|^total memory/ { print $(NF-1), $NF; exit }' "$1"; }
bad="" sizes=""
for layout in 1,0 2,0 2,1 2,2 2,3 3,0 3,1 3,2 3,3 5,2; do
    rm -rf "$work/planned"
    run_layout $layout "$work/planned" --save-every 0 --bucket-mb 0.007 --steps 1 --warmup-steps 0 --val-every 0
    "$train_gpt" plan "${toy[@]}" --ranks "${layout%,*}" --zero "${layout#*,}" --bucket-mb 0.007 --val-every 0 | grep '^total memory' > "$work/plan"
    [ -n "$(memory_of "$work/plan")" ] && [ "$(memory_of "$work/plan")" = "$(memory_of "$work/out")" ] || { cat "$work/plan" "$work/out"; bad+=" $layout"; }
    sizes+=" $layout: $(memory_of "$work/plan"),"
done
[ -z "$bad" ] && ok "memory as planned,${sizes%,}" || not_ok "memory as planned:$bad"

# ---- saved behind the training: the same files
same=""
for layout in 3,0 4,3; do
    run_layout $layout "$work/behind" --save-every 10 --async-save
    run_layout $layout "$work/at-once" --save-every 10
    for step in 0000000010 0000000020; do
        for file in "$work/at-once/ckpt/step-$step"/{shards/*,model.h5}; do cmp -s "$file" "${file/at-once/behind}" || same+=" $layout($file)"; done
    done
    [ "$(state "$work/behind")" = "$final" ] || same+=" $layout(state)"
    rm -rf "$work/behind" "$work/at-once"
done
[ -z "$same" ] && ok "--async-save on several ranks: the same bytes" || { echo "differs:$same"; not_ok "--async-save on several ranks: the same bytes"; }
. scripts/test/saved_behind.sh
saved_behind "--async-save on a slow disk" 3 6 -- "${toy[@]}" --val-every 0 --zero 1

# ---- validation is dealt out: more ranks than batches, an uneven rest, ZeRO-3 that fetches ahead
bad=""
for how in "1 --val-batches 1" "3 --val-batches 1 --zero 3" "1 --val-batches 5" "2 --val-batches 5 --zero 3" "3 --val-batches 5" "4 --val-batches 5 --zero 2" "4 --val-batches 1 --zero 3"; do
    read -r ranks options <<< "$how"
    rm -rf "$work/val"
    # shellcheck disable=SC2086
    launch "$ranks" "$train_gpt" "${toy[@]}" $options --steps 4 --warmup-steps 0 --val-every 1 --save-every 0 --out "$work/val" > "$work/out" 2> "$work/err" || { tail -n 3 "$work/err"; bad+=" $how(exit)"; }
    history "$work/val" > "$work/val.log"
    batches=${options#--val-batches }; batches=${batches%% *}
    [ "$ranks" = 1 ] && cp "$work/val.log" "$work/val.$batches"
    cmp -s "$work/val.log" "$work/val.$batches" || bad+=" $how(log)"
    [ "$(grep -c val_loss "$work/val.log")" = 5 ] || bad+=" $how(count)"
done
[ -z "$bad" ] && ok "validation over ranks: the same bits" || { echo "differs:$bad"; not_ok "validation over ranks: the same bits"; }
one=$("$train_gpt" eval --model "$work/one" --data "$work/d_val_*.bin" --seq-len 31)
[ -n "$one" ] && [ "$(launch 3 "$train_gpt" eval --model "$work/one" --data "$work/d_val_*.bin" --seq-len 31)" = "$one" ] && ok "eval over ranks: the same text" || not_ok "eval over ranks: the same text"

# ---- the ends of epochs: 101 samples, 12 a step, three and a half epochs
small=("$train_gpt" "${toy[@]}" --steps 30 --val-every 0) small[4]=$work/small.bin  # in place of the glob
bad="" epochs=""
for layout in 1,0 2,1 3,2 4,3; do
    launch "${layout%,*}" "${small[@]}" --zero "${layout#*,}" --save-every 13 --out "$work/epochs-$layout" > "$work/out" 2> "$work/err" || { tail -n 3 "$work/err"; bad+=" $layout(exit)"; }
    [ -z "$epochs" ] && epochs=$(state "$work/epochs-$layout")
    [ "$(state "$work/epochs-$layout")" = "$epochs" ] || bad+=" $layout(state)"
done
# 4 ranks for 13 steps, 2 for 13, 3 for the rest.
cp -r "$work/epochs-4,3" "$work/changing"; rm -rf "$work/changing"/ckpt/step-00000000{26,30}
launch 2 timeout 60 "${small[@]}" --save-every 13 --out "$work/changing" > "$work/out" 2>&1; rm -rf "$work/changing/ckpt/step-0000000030"
launch 3 "${small[@]}" --save-every 0 --out "$work/changing" > "$work/out" 2>&1 || bad+=" 4-2-3(exit)"
grep -q "resumed at step 26" "$work/out" && [ "$(state "$work/changing")" = "$epochs" ] || bad+=" 4-2-3(state)"
history "$work/changing" | cmp -s - <(history "$work/epochs-1,0") || bad+=" 4-2-3(log)"
[ -z "$bad" ] && ok "over the ends of epochs on 1 to 4 ranks, and on 4, 2, 3 by turns" || { echo "differs:$bad"; not_ok "over the ends of epochs"; }

# ---- one timeline of all ranks
run_layout 2,3 "$work/traced" --steps 3 --warmup-steps 1 --save-every 0 --trace "$work/trace.json"
is "--trace: both ranks' micro-batches and collectives, with bytes, in order" python3 - "$work/trace.json" << 'EOF'
import json, sys
events = [e for e in json.load(open(sys.argv[1]))["traceEvents"] if e["ph"] == "X"]
for rank in (0, 1):
    mine = [e for e in events if e["pid"] == rank]
    assert sum(e["name"] == "micro-batch" for e in mine) == 3 * 12 / 2
    assert sum(e["name"] == "update" for e in mine) == 3
    for name in ("all-gather, parameters of a block", "all-to-all, gradients of a block", "all-reduce, exact sum"):
        assert any(e["name"] == name and e["args"]["bytes"] > 0 for e in mine), name
    assert any(e["name"] == "save" for e in mine)
    assert all(", " in e["name"] for e in mine if e["cat"] == "communication"), "a collective without a purpose"
    assert all(e["ts"] >= 0 and e["dur"] >= 0 for e in mine)
    # A gather behind a micro-batch runs on the other thread.
    assert {e["tid"] for e in mine} == {0, 1}
EOF

# ---- what is refused: one message, the same code on every rank, nothing written
expect "more ranks than micro-batches" 2 "5 ranks, batch-tokens 124 = 4 x 1 x 31" "--batch-tokens 155" -- launch 5 "${run[@]}" --batch-tokens 124
[ "$(grep -c 'error:' "$work/.err")" = 1 ] && ok "in one message" || not_ok "in one message"
codes 3 "${run[@]}" --model gpt2:125M > "$work/out" 2> "$work/err"
same_codes "unknown model" 2 3
[ "$(grep -c 'error:' "$work/err")" = 1 ] && grep -q "rank 0/3" "$work/err" && ok "rank 0 alone says so" || { cat "$work/err"; not_ok "rank 0 alone says so"; }

# ---- ranks that were started with something else
expect "ranks with different options" 2 "rank 1 was started with something else" "--lr = 0.002" "--lr = 0.003" -- \
    launch 3 bash -c "$(differ "--lr 0.002")" _ "${run[@]}"
expect "ranks with different files" 2 "rank 1 was started with something else" "small.bin" -- \
    launch 3 bash -c "$(differ "--data $work/small.bin")" _ "${run[@]}"
cp "$train_gpt" "$work/another"; echo >> "$work/another"
expect "ranks with different programs" 2 "rank 1 was started with something else" "digest" -- \
    launch 3 bash -c 'if [ $OMPI_COMM_WORLD_RANK = 1 ]; then shift; exec "$0" "$@"; fi; exec "$@"' "$work/another" "${run[@]}"
expect "ranks with different commands" 2 "rank 1 was started with something else" "found command = plan" "expected command = train" -- \
    launch 3 bash -c 'if [ $OMPI_COMM_WORLD_RANK = 1 ]; then exec "$0" plan; fi; exec "$@"' "$train_gpt" "${run[@]}"
# Each rank in a folder of its own, with files that only look alike.
local_files() {  # NAME FRAGMENT COMMAND...
    local name=$1 fragment=$2; shift 2
    expect "ranks with another $name under the same name" 2 "rank 1 was started with something else" "$fragment" -- \
        launch 2 bash -c 'cd "$0/local$OMPI_COMM_WORLD_RANK" && exec "$@"' "$work" "$(realpath "$train_gpt")" "$@"
}
mkdir "$work/local0" "$work/local1"
cp "$work/toy.json" "$work/local0"
sed 's/"n_inner": 23/"n_inner": 24/' "$work/toy.json" > "$work/local1/toy.json"
cp "$work/text" "$work/text0"
rev "$work/text" > "$work/text1"
for rank in 0 1; do
    "$train_gpt" --model gpt2:d1 --vocab-size 257 --data "$work/d_train_*.bin" --seq-len 8 --micro-batch 1 --steps 1 --seed $rank --out "$work/seed$rank" > "$work/out" 2>&1
    "$train_gpt" export "$work/seed$rank" --format llmc --out "$work/local$rank/model.bin"
    echo "{\"text\": \"one two thre$rank\"}" > "$work/local$rank/lambada.jsonl"
    (head -c 1024 "$work/small.bin"; tail -c +1025 "$work/small.bin" | tr a $rank) > "$work/local$rank/data.bin"
    "$train_gpt" train-bpe "$work/text$rank" --vocab-size 270 --out "$work/local$rank/bpe.json" > "$work/out" 2>&1
done
other=("${toy[@]}" --out "$work/no") other[1]=toy.json
local_files config "the model's n_inner = 24" "${other[@]}"
other=("${toy[@]}" --out "$work/no") other[3]=data.bin
local_files "data" "data.bin = 3132 tokens" "${other[@]}"
other=("${toy[@]}" --out "$work/no") other[1]=model.bin
local_files "model to begin with" "model.bin = weights" "${other[@]}"
other=("${toy[@]}" --out "$work/no" --tokenizer bpe.json --vocab-size 270) other[1]=gpt2:d1
local_files tokenizer "found tokenizer = " "${other[@]}"
local_files model "model.bin = weights" eval --model model.bin --data "$work/d_val_*.bin" --seq-len 31
local_files "test set" "lambada.jsonl = 1 question," eval --model "$work/one" --task lambada --file lambada.jsonl

# The number of threads may differ, and does not matter to the bits.
launch 3 bash -c 'OMP_NUM_THREADS=$((9 - OMPI_COMM_WORLD_RANK)) exec "$@" --threads $((OMPI_COMM_WORLD_RANK + 1))' \
    _ "$train_gpt" "${toy[@]}" --out "$work/threads" --save-every 0 > "$work/out" 2>&1
[ "$(state "$work/threads")" = "$final" ] && ok "ranks with different numbers of threads: the same bits" || { tail -n 3 "$work/out"; not_ok "ranks with different numbers of threads"; }

# ---- what only one rank knows of the files
head -c $((1024 + 2 * (2 * 31 + 1))) "$work/small.bin" | python3 -c 'import struct, sys; b = sys.stdin.buffer.read(); sys.stdout.buffer.write(struct.pack("<3i", 20240520, 1, 63) + b[12:])' > "$work/two.bin"
two=("${run[@]}") two[4]=$work/two.bin
codes 3 "${two[@]}" > "$work/out" 2> "$work/err"
same_codes "more ranks than samples" 2 3
grep -q "more ranks than samples.*2 samples.*one a rank: 3" "$work/err" && [ "$(grep -c 'error:' "$work/err")" = 1 ] && ok "in one message" || { cat "$work/err"; not_ok "in one message"; }
# Each rank in a folder of its own: rank 0 alone, or rank 1 alone, finds a checkpoint under --out.
for who in 0 1; do
    mkdir -p "$work/disk0" "$work/disk1"
    cp -r "$work/one" "$work/disk$who/out"
    codes 2 bash -c 'cd "$0/disk$OMPI_COMM_WORLD_RANK" && exec "$@"' "$work" "$(realpath "$train_gpt")" "${toy[@]}" --out out > "$work/out" 2> "$work/err"
    same_codes "a checkpoint that rank $who alone sees" 2 2
    grep -q "rank 1: --out out is another directory here than on rank 0" "$work/err" && [ "$(grep -c 'error:' "$work/err")" = 1 ] \
        && [ "$(state "$work/disk$who/out")" = "$final" ] && ok "in one message, and it is left alone" || { cat "$work/err"; not_ok "in one message, and it is left alone"; }
    rm -rf "$work/disk0" "$work/disk1"
done
head -c 3001 "$work/d_train_000000.bin" > "$work/cut.bin"
start=$SECONDS
codes 3 bash -c "$(differ "--data $work/cut.bin")" _ "${run[@]}" > "$work/out" 2> "$work/err"
same_codes "a damaged file on one rank" 3 3
grep -q "rank 1/3.*cut.bin" "$work/err" && [ $((SECONDS - start)) -lt 10 ] && ok "that rank says so, within 10 s" || { cat "$work/err"; not_ok "that rank says so, within 10 s"; }
[ ! -e "$work/no" ] && ok "nothing was written by what was refused" || not_ok "nothing was written by what was refused"
