#!/usr/bin/env bash
# scripts/plot draws what it should, and says what it cannot do.
. scripts/test/tap.sh

log=$work/log.jsonl
for step in $(seq 1 300); do
    echo "{\"step\":$step,\"loss\":$((8000 / (step + 9) + 300))e-2,\"grad_norm\":1.5,\"lr\":0.0006,\"ms\":20.0,\"tokens_per_s\":6400.0,\"tokens\":$((step * 128))}"
done > "$log"
echo '{"step":301,"loss":null,"grad_norm":null,"lr":0.0006,"ms":20.0,"tokens_per_s":6400.0,"tokens":38528}
{"step":300,"val_loss":3.5}
{"step":300,"event":"save","path":"a"}' >> "$log"

without=$work/bin
mkdir "$without"
for tool in bash sed dirname mktemp rm env; do ln -s "$(command -v $tool)" "$without"; done
expect "gnuplot missing" 2 "gnuplot is missing" "install" -- env PATH="$without" scripts/plot "$log"
expect "no log" 2 "which log?" -- scripts/plot
expect "log not there" 2 "cannot read" -- scripts/plot "$work/none.jsonl"
expect "unknown picture" 2 ".svg or .png" -- scripts/plot "$log" -o "$work/x.pdf"
expect "unknown option" 2 "unknown option --size" -- scripts/plot "$log" --size 3

if ! command -v gnuplot > /dev/null; then
    skip "pictures" "gnuplot is not installed"
    exit
fi
expect "empty log" 2 "no training steps" -- scripts/plot /dev/null -o "$work/x.svg"
expect "svg" 0 "x.svg" -- scripts/plot "$log" -o "$work/x.svg"
is "it is a picture" grep -q "<svg" "$work/x.svg"
is "the title tells the end, the null left out" grep -q "300 steps, loss 3.*, validation 3.500" "$work/x.svg"
is "four panels" test "$(grep -cE '>(loss \(nats|gradient norm|tokens a second|learning rate)' "$work/x.svg")" = 4
is "small enough to be kept" test "$(wc -c < "$work/x.svg")" -lt 60000
expect "png of two runs, one by its folder" 0 -- scripts/plot "$work" "$log" -o "$work/x.png"
is "it is a png" test "$(head -c 4 "$work/x.png" | tail -c 3)" = PNG
