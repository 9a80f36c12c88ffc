#!/usr/bin/env bash
# The scripts of known runs: each one's options are good, and its plan can be printed by anybody; with a GPU
# they run in bf16 with a micro-batch that fits, and stay with it.
. scripts/test/tap.sh
. scripts/test/mpi.sh
export TRAIN_GPT=${TRAIN_GPT:-build/train_gpt}
for script in scripts/gpt2_*M.sh scripts/llama_*.sh; do
    expect "$script --dry-run" 0 "total memory" "total one checkpoint on disk" -- env GPU_MIB=0 RANKS=8 bash "$script" --dry-run
    expect "$script with a wrong option" 2 "did you mean" -- env GPU_MIB=0 RANKS=8 bash "$script" --dry-run --step 1
done

# ---- one of them for real, at a small scale: a folder of LLaMA 3.2's kind, continued and fine-tuned by two ranks
: "${PYTHON:=/usr/bin/python3}"
cat > "$work/small.json" << 'JSON'
{"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 1, "hidden_size": 32,
 "intermediate_size": 80, "vocab_size": 403, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
 "rope_theta": 500000.0, "tie_word_embeddings": true, "rope_scaling": {"rope_type": "llama3", "factor": 32.0,
 "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}}
JSON
"$PYTHON" -c 'import json; print(json.dumps(json.load(open("dev/reference/tokenizers.json"))["llama3"]["file"]))' > "$work/tokenizer.json"
for i in $(seq 1 300); do echo "{\"text\": \"the fox number $i jumps over $((i * i % 97)) dogs\"}"; done > "$work/text.jsonl"
for i in $(seq 1 300); do echo "{\"prompt\": \"how many dogs, fox $i?\", \"completion\": \" over $((i * i % 97)) dogs\"}"; done > "$work/tune.jsonl"
is "tokenize" "$TRAIN_GPT" tokenize "$work/text.jsonl" --tokenizer "$work/tokenizer.json" --out "$work/first"
is "a model to begin with" "$TRAIN_GPT" --model "$work/small.json" --data "$work/first_train_*.bin" --steps 30 --seq-len 64 \
    --micro-batch 4 --lr 1e-2 --warmup-steps 2 --out "$work/first"
is "its folder" "$TRAIN_GPT" export "$work/first" --format hf --dtype bf16 --out "$work/Llama"
for what in text tune; do
    is "$what: tokenize with the folder" "$TRAIN_GPT" tokenize "$work/$what.jsonl" --tokenizer "$work/Llama/tokenizer.json" --out "$work/$what"
    ranks=1 zero="zero 3"
    if has_mpi "$TRAIN_GPT"; then ranks=2 zero="2 ranks"; fi
    expect "scripts/llama_3.2_1B.sh, $what" 0 "step 6/6" "$zero" -- env MODEL="$work/Llama" DATA="$work/${what}_train_*.bin" \
        VAL_DATA="$work/${what}_val_*.bin" OUT="$work/out-$what" RANKS=$ranks OMP_WAIT_POLICY=passive bash scripts/llama_3.2_1B.sh \
        --seq-len 64 --batch-tokens 512 --steps 6 --warmup-steps 1 --lr 3e-3 --threads 1
    # Its header's promise: below what the folder's model has.
    loss() { "$TRAIN_GPT" eval --model "$1" --data "$work/${what}_val_*.bin" --seq-len 64 2> /dev/null | sed -E 's/.*"val_loss":([^,}]*).*/\1/'; }
    awk -v before="$(loss "$work/Llama")" -v after="$(loss "$work/out-$what")" 'BEGIN { exit !(after > 0 && after < before - 0.02) }' &&
        ok "$what: a lower loss than before" || not_ok "$what: a lower loss than before: $(loss "$work/Llama"), $(loss "$work/out-$what")"
done

# ---- how many ranks, and who starts them: launchers that tell what they were asked for
mkdir "$work/launchers"
for name in mpirun srun; do
    cat > "$work/launchers/$name" << 'END'
#!/bin/sh
echo "$(basename "$0") $* . SRUN_CPUS_PER_TASK=${SRUN_CPUS_PER_TASK:-none}"
END
done
printf '#!/bin/sh\necho "alone: $* ."\n' > "$work/launchers/train_gpt"
chmod +x "$work"/launchers/*
started() { # NAME CODE FRAGMENTS... -- VARIABLES... [OPTIONS]: scripts/gpt2_124M.sh with stand-ins for what it starts
    local name=$1 told=(); shift
    while [ "$1" != -- ]; do told+=("$1"); shift; done
    shift
    rm -f "$work/launched.choice"
    expect "$name" "${told[@]}" -- env -u RANKS -u HOSTS -u OMP_NUM_THREADS -u SLURM_JOB_ID -u SLURM_NTASKS -u SLURM_NNODES \
        -u SLURM_NTASKS_PER_NODE -u SLURM_CPUS_PER_TASK -u SLURM_RESTART_COUNT GPU_MIB=0 OUT="$work/launched" PATH="$work/launchers:$PATH" \
        TRAIN_GPT="$work/launchers/train_gpt" "$@"
}
run=(bash scripts/gpt2_124M.sh)
started "one rank is started by nobody" 0 "alone: --model" -- "${run[@]}"
started "HOSTS alone: a rank for each of their slots" 0 "mpirun -np 11 " "--host a:4,b:6,c " -- HOSTS=a:4,b:6,c "${run[@]}"
started "HOSTS and fewer RANKS" 0 "mpirun -np 3 " -- HOSTS=a:4,b:4 RANKS=3 "${run[@]}"
started "more RANKS than slots" 2 "RANKS=9" "HOSTS=a:4,b:4 has 8" "!mpirun" -- HOSTS=a:4,b:4 RANKS=9 "${run[@]}"
started "HOSTS that are none" 2 "HOSTS='a:four'" "!mpirun" -- HOSTS=a:four "${run[@]}"
started "RANKS that are none" 2 "RANKS='all'" "!mpirun" -- RANKS=all "${run[@]}"
started "one host of one slot" 0 "mpirun -np 1 " "--host b " -- HOSTS=b "${run[@]}"
slurm=(SLURM_JOB_ID=7 SLURM_NTASKS=16)
started "Slurm: its tasks are the ranks" 0 "srun --mpi=pmix --wait=60 " "!mpirun" -- "${slurm[@]}" "${run[@]}"
started "Slurm, and other RANKS" 2 "RANKS=8" "SLURM_NTASKS=16" "!srun" -- "${slurm[@]}" RANKS=8 "${run[@]}"
started "Slurm before it counted tasks itself" 0 "srun " -- SLURM_JOB_ID=7 SLURM_NNODES=4 SLURM_NTASKS_PER_NODE=2 RANKS=8 "${run[@]}"
started "the job's cores reach srun" 0 "SRUN_CPUS_PER_TASK=12" -- "${slurm[@]}" SLURM_CPUS_PER_TASK=12 "${run[@]}"
started "no cores in the job, none for srun" 0 "SRUN_CPUS_PER_TASK=none" -- "${slurm[@]}" "${run[@]}"
started "the job script says its cores too" 0 "SRUN_CPUS_PER_TASK=5" "--steps 5" "!--lock-wait" -- "${slurm[@]}" SLURM_CPUS_PER_TASK=5 \
    SLURM_SUBMIT_DIR="$PWD" bash scripts/gpt2.sbatch gpt2_124M --steps 5
started "queued again, it waits for the lock" 0 "--lock-wait 120" -- "${slurm[@]}" SLURM_CPUS_PER_TASK=5 SLURM_RESTART_COUNT=1 \
    SLURM_SUBMIT_DIR="$PWD" bash scripts/gpt2.sbatch gpt2_124M
started "mpirun leaves the cores to the ranks" 0 "--bind-to none" -- RANKS=2 "${run[@]}"
started "unless each has one thread" 0 "mpirun -np 2 " "!--bind-to" -- RANKS=2 "${run[@]}" --threads 1

# ---- on GPUs
# A plan for a GPU needs no GPU, but a program that knows of them: the simulator's does. What would be
# started is told, not started.
cuda=${CUDA_TRAIN_GPT:-${BUILD:-build}/sim/train_gpt}
if [ ! -x "$cuda" ]; then skip "known runs on a GPU" "no $cuda: make sim"; exit; fi
mkdir "$work/bin"
cat > "$work/bin/train_gpt" << END
#!/bin/sh
case \$1 in plan | --version) exec "$(realpath "$cuda")" "\$@" ;; esac
echo "started: \$* ."
END
cat > "$work/bin/nvidia-smi" << 'END'
#!/bin/sh
cat "$GPUS"
END
chmod +x "$work"/bin/*
export TRAIN_GPT=$work/bin/train_gpt PATH=$work/bin:$PATH GPUS=$work/gpus OUT=$work/out

plan() { # SCRIPT OPTIONS...: "MICRO_BATCH BYTES" of its plan
    local script=$1; shift
    bash "$script" --dry-run "$@" | awk '/^step:/ { b = $7 } $1 == "total" && $2 == "memory" { gsub(",", "", $3); print b, $3 }'
}
largest() { # SCRIPT MIB: the plan fits into nine tenths of it, and twice the micro-batch does not
    local b bytes twice room=$(($2 * 1024 * 1024 * 9 / 10))
    read -r b bytes <<< "$(GPU_MIB=$2 RANKS=8 plan "$1")"
    read -r _ twice <<< "$(GPU_MIB=$2 RANKS=8 plan "$1" --micro-batch $((2 * b)))"
    echo "$1, $2 MiB: micro-batch $b takes $bytes, $((2 * b)) would take $twice, room $room"
    [ "$bytes" -le "$room" ] && { [ "$b" = 64 ] || [ "$twice" -gt "$room" ]; }
}
for script in scripts/gpt2_124M.sh scripts/gpt2_1558M.sh scripts/llama_1.1B.sh; do
    is "$script takes what fits 24 GB" largest "$script" 24000
    is "$script takes what fits 80 GB" largest "$script" 81559
done
expect "a micro-batch that the ranks divide badly is not taken" 0 "32 micro-batches of 16 x 1024 on 7 ranks" "8 % of the work is padding" -- \
    env GPU_MIB=81559 RANKS=7 bash scripts/gpt2_124M.sh --dry-run
expect "a GPU that is too small" 4 "2000 MiB" "more RANKS" -- env GPU_MIB=2000 bash scripts/gpt2_1558M.sh
expect "a wrong option, with a GPU" 2 "did you mean" -- env GPU_MIB=80000 bash scripts/gpt2_124M.sh --dry-run --step 1

printf '81559, 9.0\n16384, 8.0\n' > "$GPUS"
expect "the smallest GPU that nvidia-smi lists" 0 "started: --model gpt2:124M --device cuda --dtype bf16 --micro-batch 32 " \
    "fineweb10B" -- bash scripts/gpt2_124M.sh
expect "a run keeps its choice on another machine" 0 " --dtype bf16 --micro-batch 32 " -- \
    env GPU_MIB=81559 bash scripts/gpt2_124M.sh
rm "$OUT.choice"
expect "the user's choice is the last word" 0 " --steps 5 --micro-batch 3 " "!--micro-batch 1 " -- \
    bash scripts/gpt2_124M.sh --steps 5 --micro-batch 3
rm "$OUT.choice"
echo '16384, 7.5' > "$GPUS"
expect "no bf16 before compute capability 8.0" 0 " --dtype fp32 --micro-batch " -- bash scripts/gpt2_124M.sh
rm "$OUT.choice"
: > "$GPUS"
expect "no GPU: the CPU, a sequence at a time" 0 "started: --model gpt2:124M --micro-batch 1 " -- bash scripts/gpt2_124M.sh
