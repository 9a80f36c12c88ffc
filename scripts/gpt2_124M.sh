#!/usr/bin/env bash
# GPT-2 124M on 10 billion tokens of web text: the size and the data of llm.c's smallest run.
#   machine        any number of ranks (a step is 512 sequences of 1024 tokens), each with a GPU or a share
#                  of the cores; numbers and micro-batch follow the GPU (known_runs.sh)
#   data           FineWeb's sample of 10 B tokens in GPT-2's tokens, as llm.c's dev/data/fineweb.py writes it;
#                  `train_gpt tokenize` makes the same kind of files of any text (data/README.md)
#   tokens         10 B, an epoch: 19,073 steps of 524,288
#   expected time  8.6e18 FLOP (8.6e8 a token: 6 N and attention) / (GPUs x the FLOP/s that each sustains).
#                  llm.c took 94 minutes on 8 A100 80GB (its scripts/run_gpt2_124M.sh) and 45 on 8 H100
#                  (KellerJordan/modded-nanogpt, README, record 1); nobody has timed this program on a GPU
#   expected loss  about 3.29 in validation: llm.c, discussion 481 (3.28 in modded-nanogpt's README)
# Check it first: scripts/gpt2_124M.sh --dry-run prints the plan of memory and disk and starts nothing.
: "${DATA:=data/fineweb10B/fineweb_train_*.bin}" "${VAL_DATA:=data/fineweb10B/fineweb_val_*.bin}"
. "$(dirname "$0")/known_runs.sh"
known_run gpt2:124M --batch-tokens 524288 --steps 19073 --lr 6e-4 --warmup-steps 700 --min-lr-frac 0 \
    --zero 1 --out "${OUT:-out/gpt2_124M}" "$@"
