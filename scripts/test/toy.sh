# shellcheck shell=bash
# Helpers of the scripts that train, after tap.sh: a toy model and its data, what a run has left.
# $train_gpt is the program.

# $work/toy.json: all sizes odd or prime. $work/d_*.bin: text from a script, shards of unequal size.
toy_data() {
    cat > "$work/toy.json" << 'JSON'
{"model_type": "gpt2", "n_layer": 2, "n_head": 3, "n_embd": 15, "n_inner": 23,
 "vocab_size": 257, "n_positions": 37}
JSON
    for i in $(seq 1 1500); do echo "line $i of $((i * i % 997)) and $((i * 7919 % 10007))"; done > "$work/text"
    is "tokenize" "$train_gpt" tokenize "$work/text" --tokenizer byte --out "$work/d" \
        --val-fraction 0.1 --shard-tokens 11003
    toy=(--model "$work/toy.json" --data "$work/d_train_*.bin" --val-data "$work/d_val_*.bin"
        --seq-len 31 --lr 3e-3 --threads 1)
}

state() { "$train_gpt" verify "$1"; }
# What must not depend on where a run was interrupted, nor on its layout: all lines but the events,
# without times.
history() {
    grep -v '"event"' "$1/log.jsonl" |
        sed -E 's/,?"(ms|tokens_per_s|comm_hidden_ms|comm_exposed_ms)":[^,}]*//g' | sort -t: -k2n -s
}
