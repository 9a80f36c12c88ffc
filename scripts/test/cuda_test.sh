#!/usr/bin/env bash
# The trainer's device code in the simulator: runs that change the device, the same bits under other
# orders of execution, and what is said when a GPU is missing, too old, full or broken.
# CUDA_TRAIN_GPT: a train_gpt that has CUDA; default: the simulator's.
. scripts/test/tap.sh
export OMP_WAIT_POLICY=passive
build=${BUILD:-build}
cpu=${TRAIN_GPT:-$build/train_gpt}
cuda=${CUDA_TRAIN_GPT:-$build/sim/train_gpt}

# ---- a toy whose heads fit the tensor cores
cat > "$work/toy.json" << 'END'
{"model_type": "gpt2", "n_layer": 1, "n_head": 1, "n_embd": 64, "n_inner": 96,
 "vocab_size": 257, "n_positions": 32}
END
for i in $(seq 1 300); do echo "line $i of $((i * i % 997)) and $((i * 7919 % 10007))"; done > "$work/text"
is "tokenize" "$cpu" tokenize "$work/text" --tokenizer byte --out "$work/d" --val-fraction 0.2
toy=(--model "$work/toy.json" --data "$work/d_train_*.bin" --val-data "$work/d_val_*.bin"
    --seq-len 32 --micro-batch 2 --batch-tokens 128 --warmup-steps 1 --lr 1e-3 --schedule constant --val-every 3
    --val-batches 1 --threads 1 --save-every 3 --keep 100)
state() { "$cpu" verify "$1"; }
at() { echo "$1/ckpt/step-$(printf %010d "$2")"; }
# same NAME A STEP B STEP: two checkpoints hold the same state.
same() {
    local a b
    a=$(state "$(at "$2" "$3")") b=$(state "$(at "$4" "$5")")
    if [ -n "$a" ] && [ "$a" = "$b" ]; then ok "$1"; else echo "$a, $b"; not_ok "$1"; fi
}
losses() { grep '"loss"' "$1/log.jsonl" | sed -E 's/.*"loss":([0-9.e+-]+).*/\1/'; }

# ---- three steps on each device
expect "device auto says why" 0 "simulator" "device auto found it" "bf16" -- \
    "$cuda" "${toy[@]}" --steps 3 --dtype bf16 --out "$work/bf16"
expect "cpu" 0 "asked for" -- "$cuda" "${toy[@]}" --steps 3 --device cpu --out "$work/cpu"
expect "cuda, fp32" 0 "asked for" "host" -- "$cuda" "${toy[@]}" --steps 3 --device cuda --out "$work/fp32"

# The mean of 128 losses: in fp32 the last digits, in bf16 a part in 2^9 / 3 may differ.
near() { # NAME FILE FILE SHARE: three losses each
    if paste "$2" "$3" | awk -v share="$4" '
        { d = $1 - $2; if (d < 0) d = -d; if (!(d <= share * $1)) bad = 1 } END { exit bad || NR != 3 }'
    then ok "$1"; else paste "$2" "$3"; not_ok "$1"; fi
}
for run in fp32 bf16 cpu; do losses "$work/$run" > "$work/$run.losses"; done
near "losses in fp32 are the CPU's" "$work/fp32.losses" "$work/cpu.losses" 2e-6
near "losses in bf16 are near the CPU's" "$work/bf16.losses" "$work/cpu.losses" 6e-3

# ---- the same bits: again, in another order, with recompute
for how in "" "--recompute block" "--val-every 0"; do
    rm -rf "$work/again"
    # shellcheck disable=SC2086
    CUSIM_SCHED=rand:7 CUSIM_STREAM=rand:7 "$cuda" "${toy[@]}" --steps 3 --dtype bf16 \
        --out "$work/again" $how > /dev/null 2>&1
    same "same bits in another order, $how" "$work/again" 3 "$work/bf16" 3
done

# ---- resumed is uninterrupted, also with rounding by chance; and runs change the device
for dtype in bf16 fp32; do
    for rounding in nearest stochastic; do
        [ "$dtype $rounding" = "fp32 stochastic" ] && continue
        run=("$cuda" "${toy[@]}" --device cuda --dtype "$dtype" --rounding "$rounding")
        "${run[@]}" --steps 6 --out "$work/whole" > /dev/null 2> "$work/err" || cat "$work/err"
        "${run[@]}" --steps 6 --out "$work/part" --resume "$(at "$work/whole" 3)" > /dev/null 2> "$work/err" || cat "$work/err"
        same "resumed, $dtype, $rounding" "$work/whole" 6 "$work/part" 6
        rm -rf "$work/part"
        mv "$work/whole" "$work/$dtype-$rounding"
    done
done
is "rounding by chance is another run" test "$(state "$(at "$work/bf16-nearest" 6)")" != \
    "$(state "$(at "$work/bf16-stochastic" 6)")"
"$cuda" "${toy[@]}" --steps 6 --device cpu --out "$work/cpu6" > /dev/null 2>&1
"$cuda" "${toy[@]}" --steps 6 --device cuda --out "$work/moved" --resume "$(at "$work/cpu" 3)" > /dev/null 2>&1
losses "$work/cpu6" | tail -n 3 > "$work/cpu6.losses"
losses "$work/moved" > "$work/moved.losses"
near "the CPU's run goes on on CUDA" "$work/moved.losses" "$work/cpu6.losses" 2e-6
expect "and back" 0 -- "$cpu" "${toy[@]}" --steps 7 --device cpu --out "$work/back" --resume "$(at "$work/moved" 6)"

# ---- the other commands
expect "eval" 0 '"val_loss"' -- "$cuda" eval --model "$work/bf16" --data "$work/d_val_*.bin" --device cuda --dtype bf16 --micro-batch 2
expect "generate" 0 -- "$cuda" generate --model "$work/fp32" --tokens 5 --device cuda --temperature 0
written() { "$cuda" generate --model "$work/fp32" --prompt line --tokens 5 --temperature 0 --device "$1" 2> /dev/null; }
is "the GPU writes what the CPU writes" test "$(written cuda)" = "$(written cpu)"
expect "plan without a GPU" 0 "fp32 weights" "host memory beside it" -- \
    env CUSIM_DEVICES=0 "$cuda" plan --device cuda --dtype bf16 --model gpt2:124M

# ---- what fails, and how
expect "no GPU" 2 "no GPU can be used" "no NVIDIA driver" "hint: --device cpu" -- \
    env CUSIM_DEVICES=0 "$cuda" "${toy[@]}" --steps 1 --device cuda --out "$work/x"
expect "no GPU, auto" 0 "device auto: no NVIDIA driver" -- \
    env CUSIM_DEVICES=0 "$cuda" "${toy[@]}" --steps 1 --out "$work/auto"
expect "no GPU for bf16" 2 "bf16 needs a GPU" "no NVIDIA driver" -- \
    env CUSIM_DEVICES=0 "$cuda" "${toy[@]}" --steps 1 --dtype bf16 --out "$work/x"
expect "a GPU too old for bf16" 2 "8.0" "7.5" "--dtype fp32" -- \
    env CUSIM_ARCH=75 "$cuda" "${toy[@]}" --steps 1 --dtype bf16 --device cuda --out "$work/x"
expect "a driver older than the build" 2 "driver is too old" "serves CUDA 12.4" "needs 13.0" "hint: --device cpu" -- \
    env CUSIM_DRIVER=12040 "$cuda" "${toy[@]}" --steps 1 --device cuda --out "$work/x"
expect "a driver older than the build, auto" 0 "device auto: the NVIDIA driver is too old" -- \
    env CUSIM_DRIVER=12040 "$cuda" "${toy[@]}" --steps 1 --out "$work/auto2"
cudnn=("${toy[@]}" --steps 1 --attention cudnn --out "$work/x")
expect "cuDNN in a build without it" 2 "built without cuDNN's headers" "hint: --attention own" -- \
    "$cuda" "${cudnn[@]}" --dtype bf16 --device cuda
if "$cpu" --version | grep -q "^cuDNN *loaded"; then
    expect "cuDNN without a GPU" 2 "--attention cudnn needs a GPU" "hint: --attention own" -- "$cpu" "${cudnn[@]}"
else
    skip "cuDNN without a GPU" "a build without cuDNN's headers"
fi
expect "a build without CUDA" 2 "built without CUDA" -- "$cpu" "${toy[@]}" --steps 1 --device cuda --out "$work/x"
expect "out of device memory" 4 "out of device memory for" "bytes wanted" "free" "--micro-batch" -- \
    env CUSIM_MEMORY_MB=40 "$cuda" "${toy[@]}" --steps 1 --dtype bf16 --out "$work/x"
expect "a kernel breaks in step 4" 4 "in step 4" "kernels launched last" "adamw_kernel" "last checkpoint is safe" -- \
    env CUSIM_FAIL_KERNEL=adamw_kernel:55 "$cuda" "${toy[@]}" --steps 6 --dtype bf16 --out "$work/broken"
expect "the last checkpoint is safe" 0 "resumed at step 3" -- \
    "$cuda" "${toy[@]}" --steps 6 --dtype bf16 --out "$work/broken"
same "and the run ends as if nothing had happened" "$work/broken" 6 "$work/bf16-nearest" 6

# ---- races, uninitialised values, stray accesses: whole steps under the simulator's other eyes
for mode in trace aubsan tsan; do
    program=$build/sim-$mode/train_gpt
    if [ -x "$program" ]; then
        rm -rf "$work/eyes"
        expect "a run in mode $mode" 0 "!ERROR" "!WARNING" -- \
            "$program" "${toy[@]}" --steps 3 --dtype bf16 --device cuda --out "$work/eyes" --sample-every 2 --sample-tokens 2
        same "same bits in mode $mode" "$work/eyes" 3 "$work/bf16" 3
    else
        skip "a run in mode $mode" "no $program"
    fi
done

# ---- scripts/gpu_check.sh, as far as a simulator goes
if [ -x "$build/sim/kernels" ]; then
    expect "gpu_check" 0 -- env BUILD="$build" scripts/gpu_check.sh --sim --out "$work/report"
    for text in "| attention_backward |" "| gpt2:d1 bf16" "| test_gpt |"; do
        is "gpu_check reports $text" grep -qF "$text" "$work/report/gpu_check.md"
    done
    is "its JSON is JSON" /usr/bin/python3 -c "
import json, sys
r = json.load(open(sys.argv[1]))
t, size = r['training'], 257 * 64 + 1024 * 64 + 12 * 64 * 64 + 13 * 64 + 2 * 64  # wte, wpe, layer, ln_f
assert t['steps'] == 4 and t['tokens_per_s'] > 0 and t['parameters'] == size, r
work = t['tokens_per_s'] * (6 * size + 12 * 64 * 32)  # 6 N + 12 L C T
assert abs(t['share_of_peak'] - work / (r['ceilings']['gemm_tflops'] * 1e12)) <= 5.1e-4, r
assert len(r['kernels']) > 25 and r['test_gpt']['failed'] == 0 and r['test_gpt']['passed'] > 1, r" \
        "$work/report/gpu_check.json"
else
    skip "gpu_check" "no $build/sim/kernels"
fi
