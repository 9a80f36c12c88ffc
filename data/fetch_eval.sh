#!/usr/bin/env bash
# data/fetch_eval.sh [NAME...]: test sets for `train_gpt eval --task`, as their authors published them;
# their paths on stdout, the rest on stderr.
#
# NAME  hellaswag lambada mmlu arc winogrande; default: all
# DIR   where they go [data/eval]
# FROM  a folder with the downloads (for machines without internet); else they come from their authors
#
# No checksums of these files are published, so what comes is accepted by what is known of it: its
# form and its number of questions; its SHA-256 is printed. Where the files are from: data/README.md.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=data/fetch.sh
. "$here/fetch.sh"
: "${DIR:=$here/eval}" "${FROM:=}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# get URL: the download, as $work/NAME.
get() {
    local file=$work/${1##*/}
    if [ -n "$FROM" ]; then
        cp "$FROM/${1##*/}" "$file" 2> /dev/null && return 0
        say "error: no ${1##*/} in $FROM"
    else
        download "$1" "$file" && return 0
        say "error: cannot reach $1; hint: fetch it elsewhere and name its folder by FROM=DIR"
    fi
    return 1
}

unzip_to() { # ZIP FOLDER
    mkdir -p "$2"
    if command -v unzip > /dev/null; then
        unzip -qo "$1" -d "$2"
    elif command -v python3 > /dev/null; then
        python3 -m zipfile -e "$1" "$2"
    else
        say "error: neither unzip nor python3 is installed; hint: apt-get install unzip"
        return 1
    fi
}

# keep_lines NEW FILE N: NEW, of N lines of JSON, becomes FILE.
keep_lines() {
    local lines
    lines=$(grep -c '^{.*}[[:space:]]*$' "$1" 2> /dev/null)
    if [ "${lines:-0}" != "$3" ]; then
        say "error: $2: not the published file; found ${lines:-0} lines of JSON, $(describe "$1"); expected $3 lines"
        return 1
    fi
    mkdir -p "$(dirname "$2")"
    mv "$1" "$2"
    say "$2: $3 questions, sha256 $(sha256 "$2")"
    echo "$2"
}

fetch_hellaswag() { # Zellers et al. 2019, arXiv:1905.07830: the validation set, of which answers are public
    get https://raw.githubusercontent.com/rowanz/hellaswag/master/data/hellaswag_val.jsonl &&
        keep_lines "$work/hellaswag_val.jsonl" "$DIR/hellaswag_val.jsonl" 10042
}

fetch_lambada() { # Paperno et al. 2016, arXiv:1606.06031, in the form OpenAI measured GPT-2 with
    get https://openaipublic.blob.core.windows.net/gpt-2/data/lambada_test.jsonl &&
        keep_lines "$work/lambada_test.jsonl" "$DIR/lambada_test.jsonl" 5153
}

fetch_arc() { # Clark et al. 2018, arXiv:1803.05457
    local set n
    get https://ai2-public-datasets.s3.amazonaws.com/arc/ARC-V1-Feb2018.zip &&
        unzip_to "$work/ARC-V1-Feb2018.zip" "$work/arc" || return 1
    for set in Easy:2376 Challenge:1172; do
        n=${set#*:} set=ARC-${set%:*}
        keep_lines "$(find "$work/arc" -name "$set-Test.jsonl" | head -n 1)" "$DIR/$set-Test.jsonl" "$n" || return 1
    done
}

fetch_winogrande() { # Sakaguchi et al. 2019, arXiv:1907.10641: the development set
    get https://storage.googleapis.com/ai2-mosaic/public/winogrande/winogrande_1.1.zip &&
        unzip_to "$work/winogrande_1.1.zip" "$work/winogrande" &&
        keep_lines "$(find "$work/winogrande" -name dev.jsonl | head -n 1)" "$DIR/winogrande_dev.jsonl" 1267
}

# Hendrycks et al. 2021, arXiv:2009.03300: 57 subjects, questions and examples side by side.
fetch_mmlu() {
    local tests examples
    get https://people.eecs.berkeley.edu/~hendrycks/data.tar && mkdir -p "$work/mmlu" || return 1
    if ! tar -xf "$work/data.tar" -C "$work/mmlu" 2> /dev/null; then
        say "error: data.tar: not an archive; found $(describe "$work/data.tar")"
        return 1
    fi
    tests=$(find "$work/mmlu" -name '*_test.csv' | wc -l) examples=$(find "$work/mmlu" -name '*_dev.csv' | wc -l)
    if [ "$tests" != 57 ] || [ "$examples" != 57 ]; then
        say "error: data.tar: not the published archive; found $tests subjects and $examples with examples; expected 57 and 57"
        return 1
    fi
    mkdir -p "$DIR/mmlu"
    find "$work/mmlu" \( -name '*_test.csv' -o -name '*_dev.csv' \) -exec mv {} "$DIR/mmlu/" \;
    say "$DIR/mmlu: 57 subjects, archive's sha256 $(sha256 "$work/data.tar")"
    echo "$DIR/mmlu"
}

names=("$@")
[ $# -gt 0 ] || names=(hellaswag lambada mmlu arc winogrande)
for name in "${names[@]}"; do
    case $name in
        hellaswag | lambada | mmlu | arc | winogrande) ;;
        *)
            say "error: unknown test set; found $name; expected hellaswag, lambada, mmlu, arc or winogrande"
            exit 2
            ;;
    esac
done
missing=0
for name in "${names[@]}"; do "fetch_$name" || missing=$((missing + 1)); done
[ $missing = 0 ] || { say "error: $missing of ${#names[@]} sets could not be fetched"; exit 1; }
