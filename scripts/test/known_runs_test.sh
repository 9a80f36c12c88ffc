#!/usr/bin/env bash
# The scripts of known runs: each one's options are good, and its plan can be printed by anybody.
. scripts/test/tap.sh
export TRAIN_GPT=${TRAIN_GPT:-build/train_gpt}
for script in scripts/gpt2_*M.sh scripts/llama_*.sh; do
    expect "$script --dry-run" 0 "total memory" "total one checkpoint on disk" -- env RANKS=8 bash "$script" --dry-run
    expect "$script with a wrong option" 2 "did you mean" -- env RANKS=8 bash "$script" --dry-run --step 1
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
    if command -v mpirun > /dev/null && ! "$TRAIN_GPT" --version | grep -q '^MPI *no'; then ranks=2 zero="2 ranks"; fi
    expect "scripts/llama_3.2_1B.sh, $what" 0 "step 6/6" "$zero" -- env MODEL="$work/Llama" DATA="$work/${what}_train_*.bin" \
        VAL_DATA="$work/${what}_val_*.bin" OUT="$work/out-$what" RANKS=$ranks OMP_WAIT_POLICY=passive bash scripts/llama_3.2_1B.sh \
        --seq-len 64 --batch-tokens 512 --steps 6 --warmup-steps 1 --lr 3e-3 --threads 1
    # Its header's promise: below what the folder's model has.
    loss() { "$TRAIN_GPT" eval --model "$1" --data "$work/${what}_val_*.bin" --seq-len 64 2> /dev/null | sed -E 's/.*"val_loss":([^,}]*).*/\1/'; }
    awk -v before="$(loss "$work/Llama")" -v after="$(loss "$work/out-$what")" 'BEGIN { exit !(after > 0 && after < before - 0.02) }' &&
        ok "$what: a lower loss than before" || not_ok "$what: a lower loss than before: $(loss "$work/Llama"), $(loss "$work/out-$what")"
done
