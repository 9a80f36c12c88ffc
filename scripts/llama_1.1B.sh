#!/usr/bin/env bash
# TinyLlama-1.1B from scratch on 22 billion tokens (20 a parameter): its sizes and its settings (Zhang et
# al. 2024, arXiv:2401.02385, table 1 and section 2), a hundredth of its three trillion tokens.
#   machine        any number of ranks (a step is 1024 sequences of 2048 tokens), each with a GPU or a share
#                  of the cores; numbers and micro-batch follow the GPU (known_runs.sh)
#   tokens         22 B: 10,490 steps of 2,097,152
#   expected time  1.6e20 FLOP (7.3e9 a token: 6 N and attention) / (GPUs x the FLOP/s that each sustains);
#                  not measured by us
#   expected loss  not measured by us; 2.55 by the formula of Hoffmann et al. 2022, arXiv:2203.15556,
#                  section 3.3 (1.69 + 406.4 / N^0.34 + 410.7 / D^0.28), which is for other text and tokens
#   data           token shards by LLaMA's tokenizer, whose tokenizer.model comes with its models:
#                    train_gpt tokenize TEXT.jsonl --tokenizer tokenizer.model --out data/web
# Check it first: scripts/llama_1.1B.sh --dry-run prints the plan of memory and disk and starts nothing.
: "${DATA:=data/web_train_*.bin}" "${VAL_DATA:=data/web_val_*.bin}"
. "$(dirname "$0")/known_runs.sh"
known_run llama:tinyllama-1.1B --seq-len 2048 --batch-tokens 2097152 --steps 10490 --lr 4e-4 \
    --warmup-steps 2000 --min-lr-frac 0.1 --zero 3 --recompute block --out "${OUT:-out/llama_1.1B}" "$@"
