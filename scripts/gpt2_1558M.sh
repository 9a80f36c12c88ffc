#!/usr/bin/env bash
# GPT-2 1558M, the full size, on 34 billion tokens of web text, the length of llm.c's run.
#   machine        any number of ranks (a step is 1024 sequences of 1024 tokens), each with a GPU or a share
#                  of the cores; numbers and micro-batch follow the GPU (known_runs.sh)
#   data           FineWeb-Edu's sample of 100 B tokens (llm.c's dev/data/edu_fineweb.sh fetches it), of which
#                  a third is read
#   tokens         33.6 B: 32,000 steps of 1,048,576
#   expected time  3.5e20 FLOP (1.03e10 a token) / (GPUs x the FLOP/s that each sustains). llm.c took 2.75 s a
#                  step on 8 H100, 24 hours (discussion 677); not measured by us
#   expected loss  about 2.70 on FineWeb, by the rule of gpt2_774M.sh (2.46 and a quarter); FineWeb-Edu is other
#                  text, for which we know of no published figure
# Check it first: scripts/gpt2_1558M.sh --dry-run
: "${DATA:=data/edu_fineweb100B/edu_fineweb_train_*.bin}" "${VAL_DATA:=data/edu_fineweb100B/edu_fineweb_val_*.bin}"
. "$(dirname "$0")/known_runs.sh"
known_run gpt2:1558M --batch-tokens 1048576 --steps 32000 --lr 6e-4 --warmup-steps 700 --min-lr-frac 0.1 \
    --zero 3 --recompute block --out "${OUT:-out/gpt2_1558M}" "$@"
