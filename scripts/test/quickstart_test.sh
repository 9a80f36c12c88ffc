#!/usr/bin/env bash
# scripts/quickstart.sh with stand-ins for what installs, builds, fetches and trains: each text has a
# vocabulary, tokens and a run of its own, and is tokenized once.
. scripts/test/tap.sh

tree=$work/tree
mkdir -p "$tree/scripts" "$tree/data" "$tree/build"
cp scripts/quickstart.sh "$tree/scripts"
stand_in() { printf '#!/usr/bin/env bash\n%s\n' "$2" > "$tree/$1"; chmod +x "$tree/$1"; }
stand_in scripts/install_deps.sh ""
stand_in scripts/plot ""
stand_in data/fetch_corpus.sh 'echo "the text $1" > "data/$1.txt"; echo "data/$1.txt"'
# What it was told goes into the file told; tokenize writes a file as the true one does.
stand_in build/train_gpt 'echo "$*" >> told
    [ "$1" != tokenize ] || touch "${!#}_train_000000.bin" "${!#}_val_000000.bin"'
quickstart() { (cd "$tree" && rm -f told && MAKE=true CORPUS=$1 scripts/quickstart.sh); }
told() { grep "^$1 " "$tree/told" | tr -s ' ' '\n' | grep "^quickstart/" | sort; }

expect "a first text" 0 "data/one.txt" "==== done" -- quickstart one
for command in train-bpe tokenize train generate; do told $command > "$work/one.$command"; done
expect "another text" 0 "data/two.txt" -- quickstart two
for command in train-bpe tokenize train generate; do
    told $command > "$work/two.$command"
    is "$command: no name of the first text's" test -s "$work/two.$command" -a -z "$(comm -12 "$work/one.$command" "$work/two.$command")"
done
is "tokenize reads the second text" grep -q "^tokenize data/two.txt " "$tree/told"
expect "the first again" 0 -- quickstart one
is "goes on with its own tokens and run" diff "$work/one.train" <(told train)
is "and tokenizes nothing" test -z "$(told train-bpe)$(told tokenize)"
