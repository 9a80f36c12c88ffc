# shellcheck shell=bash
# Helpers of the mpi_*_test.sh scripts, after tap.sh: starting ranks, a toy to train, exit codes.

# Root is refused, and so are more ranks than cores, unless one insists; and who waits must not spin.
launch() {
    local ranks=$1; shift
    mpirun -np "$ranks" --allow-run-as-root --oversubscribe --mca mpi_yield_when_idle 1 "$@"
}

# Each rank notes its exit code in $work/code.RANK. mpirun ends the others by SIGTERM when one is gone: the
# shell around a rank, and the rank itself, do without it.
codes() {
    local ranks=$1; shift
    rm -f "$work"/code.*
    launch "$ranks" bash -c 'trap "" TERM; "${@:2}"; code=$?; echo $code > "$1/code.$OMPI_COMM_WORLD_RANK"; exit $code' \
        _ "$work" "$@"
}
same_codes() {  # NAME CODE RANKS
    local found
    found=$(cat "$work"/code.* 2> /dev/null | sort | uniq -c | tr -s ' \n' ' ')
    [ "$found" = " $3 $2 " ] && ok "$1: $3 ranks exit with $2" || { echo "codes:$found"; not_ok "$1: $3 ranks exit with $2"; }
}

state() { "$train_gpt" verify "$1"; }
# What must not depend on the layout: all lines but the events, without times.
history() {
    grep -v '"event"' "$1/log.jsonl" |
        sed -E 's/,"(ms|tokens_per_s|comm_hidden_ms|comm_exposed_ms)":[^,}]*//g' | sort -t: -k2n -s
}

# A toy whose sizes are all odd or prime, 12 micro-batches a step: the options are in ${toy[@]}.
toy_data() {
    cat > "$work/toy.json" << 'EOF'
{"model_type": "gpt2", "n_layer": 2, "n_head": 3, "n_embd": 15, "n_inner": 23,
 "vocab_size": 257, "n_positions": 37}
EOF
    for i in $(seq 1 1500); do echo "line $i of $((i * i % 997)) and $((i * 7919 % 10007))"; done > "$work/text"
    is "tokenize" "$train_gpt" tokenize "$work/text" --tokenizer byte --out "$work/d" \
        --val-fraction 0.1 --shard-tokens 11003
    toy=(--model "$work/toy.json" --data "$work/d_train_*.bin" --val-data "$work/d_val_*.bin"
        --seq-len 31 --micro-batch 1 --batch-tokens 372 --warmup-steps 5 --lr 3e-3 --threads 1)
}
