#!/usr/bin/env bash
# GPT-2 350M on 30 billion tokens of web text.
#   machine        any number of ranks that divides 512 micro-batches of 1024 tokens, each with a GPU or
#                  a share of the cores
#   tokens         30 B: 57,220 steps of 524,288
#   expected time  about 7.2e19 FLOP in all: 8 days at a sustained 100 TFLOP/s
#   expected loss  below the smaller models'; not measured by us
# Check it first: scripts/gpt2_350M.sh --dry-run
. "$(dirname "$0")/known_runs.sh"
known_run gpt2:350M --micro-batch 1 --batch-tokens 524288 --steps 57220 --lr 3e-4 --warmup-steps 700 \
    --zero 1 --recompute selective --out "${OUT:-out/gpt2_350M}" "$@"
