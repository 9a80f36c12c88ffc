#!/usr/bin/env bash
# The documents speak of what is there: every file of llmc/ has its line in llmc/README.md, every
# link and path leads somewhere, every option that README.md types exists.
. scripts/test/tap.sh

missing=""
for file in llmc/*/*.*; do
    unit=$(basename "$file")
    unit=${unit%%.*}
    unit=${unit%_cuda_test}
    [[ $unit == op_test || $unit == cuda_test ]] || unit=${unit%_test}
    case $unit in *_cpu | *_cuda | *_self) unit=${unit%_*} ;; esac
    grep -qF "[$unit" llmc/README.md || missing+=" $file"
done
[ -z "$missing" ] || echo "no line in llmc/README.md:$missing"
is "llmc/README.md names every unit" test -z "$missing"

long=$(wc -l llmc/*/*.h llmc/*/*.cpp llmc/*/*.cu* ./*.cu | awk '$1 > 550 && $2 != "total" { print $2 ": " $1 " lines" }')
[ -z "$long" ] || echo "$long"
is "no source is much longer than 500 lines" test -z "$long"
# Other versions of it differ in places.
if clang-format --version 2> /dev/null | grep -q 'version 14\.'; then
    is "every source has the form of .clang-format" make -s format FORMAT="clang-format --dry-run -Werror"
else
    skip "every source has the form of .clang-format" "clang-format 14 is not here"
fi

for doc in README.md */README.md dev/*/README.md dev/doc/*.md; do
    [ -f "$doc" ] || continue
    dead=""
    while read -r link; do
        [[ $link == http* || -e $(dirname "$doc")/${link%%#*} ]] || dead+=" $link"
    done < <(grep -oE '\]\([^)# ]+[^) ]*\)' "$doc" | sed -E 's/^\]\(|\)$//g')
    [ -z "$dead" ] || echo "dead links:$dead"
    is "links of $doc" test -z "$dead"
done

# Every paper that is cited has its line in the list, every line has its places in the sources.
cited() { grep -rhoE 'arXiv:[0-9]{4}\.[0-9]{4,5}' --include='*.*' "$@" --exclude=references.md | sort -u; }
cited ./*.cu README.md llmc dev data/*.* scripts > "$work/cited"
grep -oE 'arXiv:[0-9.]+' dev/doc/references.md | sort > "$work/listed"
is "dev/doc/references.md lists what is cited, each once" diff "$work/cited" "$work/listed"
wrong=""
while read -r id file; do  # a name may stand for several files
    # shellcheck disable=SC2086
    grep -qsF "$id" llmc/$file $file || wrong+=" $file ($id)"
done < <(awk 'match($0, /arXiv:[0-9.]+/) { id = substr($0, RSTART, RLENGTH)
    while (match($0, /`[^`]+`/)) { print id, substr($0, RSTART + 1, RLENGTH - 2); $0 = substr($0, RSTART + RLENGTH) } }' dev/doc/references.md)
[ -z "$wrong" ] || echo "not cited there:$wrong"
is "and the files it names cite it" test -z "$wrong"

gpt=${TRAIN_GPT:?"the program to test"}
known=$(for command in train plan tokenize train-bpe generate eval import export verify; do
    "$gpt" $command --help
done)
unknown=""
while read -r option; do
    grep -qE -e "--$option( |\$)" <<< "$known" || unknown+=" --$option"
done < <(grep -ohE '(^|[ `])--[a-z][a-z0-9-]+' README.md data/README.md 2> /dev/null |
    grep -oE '[a-z].*' | grep -vx mca | sort -u)  # mpirun's own
[ -z "$unknown" ] || echo "options that do not exist:$unknown"
is "README.md types options that exist" test -z "$unknown"
