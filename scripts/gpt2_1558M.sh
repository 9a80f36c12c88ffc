#!/usr/bin/env bash
# GPT-2 1558M, the full size, on 32 billion tokens of web text.
#   machine        any number of ranks that divides 1024 micro-batches of 1024 tokens, each with a GPU or
#                  a share of the cores
#   tokens         32 B: 32,000 steps of 1,048,576 (the length of llm.c's run, discussion 677)
#   expected time  about 3.4e20 FLOP in all: 39 days at a sustained 100 TFLOP/s
#   expected loss  not measured by us
# Check it first: scripts/gpt2_1558M.sh --dry-run
. "$(dirname "$0")/known_runs.sh"
known_run gpt2:1558M --micro-batch 1 --batch-tokens 1048576 --steps 32000 --lr 6e-4 --warmup-steps 700 \
    --zero 3 --recompute block --out "${OUT:-out/gpt2_1558M}" "$@"
