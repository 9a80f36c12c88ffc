#!/usr/bin/env bash
# GPT-2 350M on 31 billion tokens of web text, the length of llm.c's run.
#   machine        any number of ranks (a step is 512 sequences of 1024 tokens), each with a GPU or a share
#                  of the cores; numbers and micro-batch follow the GPU (known_runs.sh)
#   data           FineWeb's sample of 100 B tokens (llm.c's dev/data/fineweb.py --version 100B), of which a
#                  third is read; the sample of 10 B would be read three times over
#   tokens         31.5 B: 60,000 steps of 524,288
#   expected time  7.7e19 FLOP (2.4e9 a token) / (GPUs x the FLOP/s that each sustains). llm.c took 820 ms a step
#                  on 8 A100 80GB, 13.7 hours (its scripts/run_gpt2_350M.sh); not measured by us
#   expected loss  2.92 in validation: llm.c's run, as KellerJordan/modded-nanogpt gives it (README, track 2)
# Check it first: scripts/gpt2_350M.sh --dry-run
: "${DATA:=data/fineweb100B/fineweb_train_*.bin}" "${VAL_DATA:=data/fineweb100B/fineweb_val_*.bin}"
. "$(dirname "$0")/known_runs.sh"
known_run gpt2:350M --batch-tokens 524288 --steps 60000 --lr 3e-4 --warmup-steps 700 --min-lr-frac 0 \
    --zero 1 --recompute selective --out "${OUT:-out/gpt2_350M}" "$@"
