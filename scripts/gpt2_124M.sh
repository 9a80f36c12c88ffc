#!/usr/bin/env bash
# GPT-2 124M on 10 billion tokens of web text (FineWeb-10B, llm.c's shards): the size and the data of
# the smallest GPT-2, to a validation loss of about 3.29 (llm.c, discussion 481: 3.29 after 10 B tokens).
#   machine        any number of ranks that divides 512 micro-batches of 1024 tokens, each with a GPU or
#                  a share of the cores
#   tokens         10 B: 19,073 steps of 524,288
#   expected time  about 8.6e18 FLOP in all (6 N a token and attention); a machine that sustains
#                  1 TFLOP/s needs 100 days, 100 TFLOP/s a day
#   data           data/README.md says how token shards are fetched or made
# Check it first: scripts/gpt2_124M.sh --dry-run prints the plan of memory and disk and starts nothing.
. "$(dirname "$0")/known_runs.sh"
known_run gpt2:124M --micro-batch 1 --batch-tokens 524288 --steps 19073 --lr 6e-4 --warmup-steps 700 \
    --zero 1 --out "${OUT:-out/gpt2_124M}" "$@"
