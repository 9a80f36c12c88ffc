#!/usr/bin/env bash
# Every command under mpirun: what one process does, once, and one exit code on all ranks. Timelines of runs
# that end badly, and what a launcher's output must not hold.
. scripts/test/tap.sh
export OMP_WAIT_POLICY=passive
train_gpt=${TRAIN_GPT:-build/train_gpt}
. scripts/test/mpi.sh
needs_mpi "commands on many ranks"

toy_ranks
toy+=(--val-every 0)
sed -i 's/"n_inner": 23/"n_inner": 60, "layer_norm_epsilon": 1e-5/' "$work/toy.json"  # what llm.c's files have room for
"$train_gpt" "${toy[@]}" --steps 6 --save-every 0 --out "$work/m" > "$work/out" 2>&1 || { cat "$work/out"; not_ok "a model"; }
newest=$(ls -d "$work"/m/ckpt/step-*)
"$train_gpt" export "$newest" --format llmc --out "$work/m.bin"
run=("$train_gpt" "${toy[@]}" --warmup-steps 0 --save-every 0)
whole() { python3 -c 'import json, sys; sys.exit(not any(e["name"] == "micro-batch" and e["pid"] == int(sys.argv[2]) for e in json.load(open(sys.argv[1]))["traceEvents"]))' "$@"; }

# ---- every command: what one process does, once
# COMMAND NAME: what it is told; $at is the folder that it writes to.
told() {
    case $1 in
        help) words=(--help) ;;
        version) words=(--version) ;;
        "help of one") words=(eval --help) ;;
        plan) words=(plan --model gpt2:d2 --micro-batch 2 --threads 1) ;;
        tokenize) words=(tokenize "$work/text" --tokenizer byte --shard-tokens 3001 --out "$at/t") ;;
        train-bpe) words=(train-bpe "$work/text" --vocab-size 300 --out "$at/bpe.json") ;;
        generate) words=(generate --model "$work/m" --tokenizer byte --prompt line --tokens 40 --threads 1) ;;
        eval) words=(eval --model "$work/m" --data "$work/d_val_*.bin" --seq-len 31 --threads 1) ;;
        import) words=(import "$work/m.bin" --tokenizer byte --out "$at/i") ;;
        "export, llm.c's") words=(export "$newest" --format llmc --out "$at/e.bin") ;;
        "export, a folder") words=(export "$newest" --format hf --out "$at/e") ;;
        verify) words=(verify "$work/m") ;;
        "tokenize: no such file") words=(tokenize "$work/none" --tokenizer byte --out "$at/t") ;;
        "train-bpe: nothing to learn") words=(train-bpe /dev/null --vocab-size 300 --out "$at/bpe.json") ;;
        "verify: no checkpoint") words=(verify "$work/none") ;;
        "export: into a folder") words=(export "$newest" --format llmc --out "$at") ;;
        "eval: no data") words=(eval --model "$work/m" --data "$work/none") ;;
        "generate: no model") words=(generate --model "$work/none") ;;
    esac
}
bad="" commands=(help version "help of one" plan tokenize train-bpe generate eval import "export, llm.c's" "export, a folder" verify
    "tokenize: no such file" "train-bpe: nothing to learn" "verify: no checkpoint" "export: into a folder" "eval: no data" "generate: no model")
for name in "${commands[@]}"; do
    at=$work/at
    for ranks in 1 2; do
        rm -rf "$at"; mkdir "$at"
        told "$name"
        if [ $ranks = 1 ]; then
            "$train_gpt" "${words[@]}" > "$work/1.out" 2> "$work/1.err"
            expected=$?
        else
            codes 2 "$train_gpt" "${words[@]}" > "$work/2.out" 2> "$work/2.err"
        fi
        # Checkpoints name their run and hold one file a rank: what they mean is their state, which is in the output.
        (cd "$at" && find . -type f ! -path './i/*' -exec sha256sum {} + | sort) > "$work/$ranks.files"
    done
    [ "$(cat "$work"/code.* | sort -u)" = "$expected" ] && [ "$(ls "$work"/code.* | wc -l)" = 2 ] || bad+=" [$name: codes $(cat "$work"/code.* | paste -sd,), not $expected]"
    cmp -s "$work/1.out" "$work/2.out" || bad+=" [$name: output]"
    cmp -s "$work/1.files" "$work/2.files" || bad+=" [$name: files]"
    [ "$(grep -c 'error:' "$work/1.err")" = "$(grep -c 'error:' "$work/2.err")" ] || bad+=" [$name: errors]"
    grep -q "MPI_" "$work/2.err" && bad+=" [$name: MPI complains]"
    enough && break
done
[ -z "$bad" ] && ok "${#commands[@]} commands on two ranks: as on one" || { echo "bad:$bad"; tail -n 5 "$work/2.err"; not_ok "commands on two ranks"; }

# ---- colours and live lines are for terminals, not for what a launcher passes on
launch 2 "$train_gpt" "${toy[@]}" --steps 2 --warmup-steps 0 --save-every 0 --out "$work/plain" > "$work/out" 2>&1
grep -q "step 2/2" "$work/out" && ! grep -q $'\033' "$work/out" && ok "no escapes under mpirun" || { cat -v "$work/out"; not_ok "no escapes under mpirun"; }
CLICOLOR_FORCE=1 launch 2 "$train_gpt" "${toy[@]}" --steps 2 --warmup-steps 0 --save-every 0 --out "$work/colour" > "$work/out" 2>&1
grep -q $'\033\[1m' "$work/out" && ! grep -q $'\033\[K' "$work/out" && ok "CLICOLOR_FORCE: colours, no live line" || { cat -v "$work/out"; not_ok "CLICOLOR_FORCE"; }

# ---- --trace: refused before anything is done, and written when a run ends badly
codes 2 "${run[@]}" --steps 3 --trace /nonexistent/x.json --out "$work/no" > "$work/out" 2> "$work/err"
same_codes "--trace that cannot be written" 2 2
[ "$(grep -c "cannot write --trace /nonexistent/x.json" "$work/err")" = 1 ] && [ ! -e "$work/no" ] && ok "said once, nothing done" || { cat "$work/err"; not_ok "said once, nothing done"; }
codes 2 "${run[@]}" --steps 40 --lr 1e30 --grad-clip 0 --max-skipped 1 --trace "$work/bad.json" --out "$work/bad" > "$work/out" 2> "$work/err"
same_codes "a run that ends with an error" 5 2
is "has its timeline: rank 0's" whole "$work/bad.json" 0
is "and rank 1's" whole "$work/bad.json.1" 1

# ---- hangs: none in a sample that takes longer than the limit, one in a command whose rank is stopped
echo '{"model_type": "gpt2", "n_layer": 8, "n_head": 4, "n_embd": 256, "vocab_size": 257, "n_positions": 64}' > "$work/wide.json"
slow=("${run[@]}") slow[2]=$work/wide.json  # in place of the toy
expect "no alarm in a slow sample" 0 "a sample at step 0" "!no progress" -- "${slow[@]}" --batch-tokens 31 --steps 1 --val-batches 1 \
    --sample-every 1 --sample-tokens 3000 --seed 1 --step-limit 1 --out "$work/sample"
stopped() {  # WORDS...: rank 1 is stopped after a second; $code
    setsid mpirun -np 2 --allow-run-as-root --oversubscribe --mca mpi_yield_when_idle 1 --mca odls_base_sigkill_timeout 1 \
        bash -c 'echo $$ > "$1/pid.$OMPI_COMM_WORLD_RANK"; exec "${@:2}" > /dev/null 2>> "$1/err"' _ "$work" "$@" > /dev/null 2>&1 &
    local mpirun=$!
    sleep 3
    kill -STOP "$(cat "$work/pid.1")"
    (sleep 30; kill -KILL $mpirun "$(cat "$work/pid.0")") 2> /dev/null &
    local patience=$!
    wait $mpirun
    code=$?
    kill $patience
    kill -KILL "$(cat "$work/pid.1")" 2> /dev/null
}
: > "$work/err"
stopped "$train_gpt" selftest-comm --max-mb 500 --step-limit 2
[ $code = 6 ] && grep -q "no progress for .* in this command; last collective .*local rank 1.*no sign of life.*--step-limit" "$work/err" \
    && ok "a stopped rank ends selftest-comm with 6" || { echo "code $code"; cat "$work/err"; not_ok "a stopped rank ends selftest-comm with 6"; }
: > "$work/err"
stopped "${run[@]}" --steps 1000000 --step-limit 2 --trace "$work/hang.json" --out "$work/hang"
[ $code = 6 ] && whole "$work/hang.json" 0 && ok "a hang leaves rank 0's timeline" || { echo "code $code"; cat "$work/err"; not_ok "a hang leaves rank 0's timeline"; }
