#!/usr/bin/env bash
# The scripts of known runs: each one's options are good, and its plan can be printed by anybody.
. scripts/test/tap.sh
export TRAIN_GPT=${TRAIN_GPT:-build/train_gpt}
for script in scripts/gpt2_*M.sh scripts/llama_*.sh; do
    expect "$script --dry-run" 0 "total memory" "total one checkpoint on disk" -- env RANKS=8 bash "$script" --dry-run
    expect "$script with a wrong option" 2 "did you mean" -- env RANKS=8 bash "$script" --dry-run --step 1
done
