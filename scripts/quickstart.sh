#!/usr/bin/env bash
# make quickstart: from a fresh machine to a small GPT that writes English, in a few minutes on two
# cores. Everything lies in quickstart/NAME_OF_TEXT/ afterwards; typed again it goes on where it was
# stopped.
#   QUICKSTART=DIR      another folder                CORPUS=tinyshakespeare|austen   another text
set -euo pipefail
cd "$(dirname "$0")/.."
build=${BUILD:-build}
began=$SECONDS
title() { printf '\n==== %s\n' "$*"; }
run() { printf '$ %s\n' "$*"; "$@"; }

title "1 of 6: what this machine lacks"
scripts/install_deps.sh
installed=$SECONDS

title "2 of 6: build"
${MAKE:-make} --no-print-directory -j"$(nproc)"
gpt=$build/train_gpt

title "3 of 6: a text"
text=$(data/fetch_corpus.sh "${CORPUS:-auto}")
echo "$text: $(wc -c < "$text") bytes"
dir=${QUICKSTART:-quickstart}/$(basename "$text" .txt)  # another text is another vocabulary, and another run
mkdir -p "$dir"

title "4 of 6: learn a vocabulary from it, and turn the text into tokens"
if [ ! -e "$dir/text_val_000000.bin" ]; then
    run "$gpt" train-bpe "$text" --vocab-size 1024 --out "$dir/bpe.json"
    run "$gpt" tokenize "$text" --tokenizer "$dir/bpe.json" --val-fraction 0.05 --out "$dir/text"
fi

# 1.7 million parameters and a million tokens: as much as two cores do in about a minute and a half.
title "5 of 6: train"
run "$gpt" train --model gpt2:d3 --data "$dir/text_train_*.bin" --val-data "$dir/text_val_*.bin" \
    --micro-batch 8 --seq-len 128 --steps 1100 --lr 4e-3 --warmup-steps 60 \
    --val-every 200 --val-batches 32 --sample-every 275 --sample-tokens 60 \
    --save-every 275 --keep 2 --out "$dir/run"

title "6 of 6: what it writes now, and the curve"
case $text in
    *shakespeare*) prompts=("ROMEO:" "What is" "My lord") ;;
    *) prompts=("It was" "She could not" "\"My dear") ;;
esac
: > "$dir/samples.txt"
for prompt in "${prompts[@]}"; do
    run "$gpt" generate --model "$dir/run" --prompt "$prompt" --tokens 100 --temperature 0.7 \
        --top-k 40 --seed 1 | tee -a "$dir/samples.txt"
    echo | tee -a "$dir/samples.txt"
done
picture="$dir/loss.svg"
scripts/plot "$dir/run" -o "$picture" > /dev/null ||
    picture="(none: gnuplot is missing; apt-get install gnuplot-nox, then scripts/plot $dir/run)"

cat << SCREEN

==== done in $((SECONDS - began)) s, of which $((installed - began)) s to install packages
  the text             $text
  its vocabulary       $dir/bpe.json
  its tokens           $dir/text_train_000000.bin, $dir/text_val_000000.bin
  the trained model    $dir/run/ckpt/
  every number         $dir/run/log.jsonl
  the loss curve       $picture
  what it wrote        $dir/samples.txt

Go on:
  $gpt generate --model $dir/run --prompt "Mr. Darcy" --tokens 200
  $gpt plan --model gpt2:124M          # what a larger model would need
  $gpt --help                          # everything it can do; README.md explains how it does it
SCREEN
