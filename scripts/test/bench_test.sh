#!/usr/bin/env bash
# make bench: what it prints, and that a training step needs the memory that the plan says. Speed
# itself is no test: it depends on what else the machine does.
. scripts/test/tap.sh

: "${BUILD:=build}"
free_kib=$(awk '/MemAvailable/ { print $2 }' /proc/meminfo)
if [ "$free_kib" -lt $((5 * 1024 * 1024)) ]; then
    skip "a step of GPT-2 124M" "less than 5 GiB of free memory"
    exit
fi
"${MAKE:-make}" -s "$BUILD/bench" > "$work/make" 2>&1 || cat "$work/make"
expect "an unknown model" 2 "error: unknown model" -- "$BUILD/bench" gpt2:d1x 1 8
if "$BUILD/bench" gpt2:d1 1 8 257 1 2>&1 | grep -q "no BLAS on this machine"; then
    skip "a step of GPT-2 124M" "no BLAS to compare with"
    exit
fi
# Attention wider than the model, a gated MLP, a head of its own: 3 products of 2 operations a token and weight.
cat > "$work/config.json" << 'JSON'
{"model_type": "qwen3", "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
 "hidden_size": 64, "intermediate_size": 96, "vocab_size": 256, "max_position_embeddings": 32,
 "tie_word_embeddings": false, "rms_norm_eps": 1e-6, "rope_theta": 10000, "hidden_act": "silu"}
JSON
weights=$((2 * (64 * (4 + 2 * 2) * 32 + 4 * 32 * 64 + 64 * 2 * 96 + 96 * 64) + 64 * 256))
expect "the products of a model whose widths all differ" 0 \
    "whole step, $(awk -v w=$weights 'BEGIN { printf "%.6g", 6 * 8 * w * 1e-9 }') GFLOP" -- "$BUILD/bench" "$work/config.json" 1 8 0 1
expect "bench" 0 "tokens/s" "of the SGEMM peak" "alone on the step's GEMMs" "attention" -- \
    "$BUILD/bench" gpt2:124M 4 256 0 1
read -r plan peak <<< "$(sed -nE 's/.*plan ([0-9.]+) GiB, peak resident ([0-9.]+) GiB.*/\1 \2/p' "$work/.out")"
is "peak memory ($peak GiB) is the plan's ($plan GiB) within a tenth" \
    awk -v a="$peak" -v b="$plan" 'BEGIN { exit !(a > 0.9 * b && a < 1.1 * b) }'
is "and under 3 GiB" awk -v a="$peak" 'BEGIN { exit !(a > 0 && a < 3) }'
