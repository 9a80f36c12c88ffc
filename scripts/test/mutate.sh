# shellcheck shell=bash
# Do the tests see faults? Sourced by dev/*/*mutations_test.sh, which list faults and say how a
# program is built and run with one. A fault is planted in a copy, so the tree stays as it is.
#   TEST_DEEP=1 dev/X/mutations_test.sh    all of the list: minutes, so `make test-deep` runs it
#   dev/X/mutations_test.sh WORD           those whose name holds WORD
#   dev/X/mutations_test.sh                only whether each fault still finds the line that it changes
. scripts/test/tap.sh
export OMP_WAIT_POLICY=passive
build=${BUILD:-build} only=${1:-} tree=$work/tree
lines_only='' faults=0 stale=''
if [ -z "${TEST_DEEP:-}$only" ]; then
    lines_only=1
    trap lines_found EXIT
fi
lines_found() {
    if [ -z "$stale" ]; then ok "$faults faults find their lines"; else echo "no such line:$stale"; not_ok "$faults faults find their lines"; fi
    skip "and are seen" "minutes long; make test-deep runs it"
    rm -rf "$work"
}

# How tests, the simulator and the sanitizers begin what they report.
finding='^\[  FAILED  \] [A-Za-z0-9_./]+|==[a-z]+== [A-Z].*|[A-Z][a-z]+Sanitizer: .*|runtime error: .*'

# $tree has FILE as SED makes it, and nothing else.
plant() { # FILE SED
    rm -rf "$tree"
    mkdir -p "$(dirname "$tree/$1")"
    sed -E "$2" "$1" > "$tree/$1"
}

# Without a fault the tests must pass, and in a third of the time that a faulty program has: else every fault
# would count as seen, or one that is merely slow. Asked once for each way to test.
declare -A sound=()
share=1  # mutant_run takes this part of its time
is_sound() { # FILE HOW...
    local how=${mode:-plain}${2:+, $2}
    if [ -z "${sound[$how]:-}" ]; then
        plant "$1" ""
        share=3
        mutant_build "$@" > "$work/log" 2>&1 && mutant_run "${@:2}" > "$work/log" 2>&1
        sound[$how]=$?
        share=1
        if [ "${sound[$how]}" = 0 ]; then ok "without a fault: $how"
        else tail -n 5 "$work/log"; not_ok "without a fault: $how: exit code ${sound[$how]}"; fi
    fi
    return "${sound[$how]}"
}

# mutate NAME FILE SED [HOW...]: FILE edited by SED must fail some test. mutant_build FILE HOW...
# makes $work/mutant from $tree/FILE and the rest of the tree, mutant_run HOW... runs its tests.
mutate() {
    local name=$1 file=$2 program=$3; shift 3
    [[ $name == *"$only"* ]] || return
    if [ -n "$lines_only" ]; then
        faults=$((faults + 1))
        ! sed -E "$program" "$file" | cmp -s - "$file" || stale+=" [$name, $file]"
        return
    fi
    is_sound "$file" "$@" || { not_ok "$name: its tests fail without it"; return; }
    plant "$file" "$program"
    if cmp -s "$file" "$tree/$file"; then
        not_ok "$name: $file has no such line"
    elif ! mutant_build "$file" "$@" > "$work/log" 2>&1; then
        grep -m 5 -E 'error|undefined' "$work/log"
        not_ok "$name: does not compile"
    else
        mutant_run "$@" > "$work/log" 2>&1
        case $? in
            0) tail -n 2 "$work/log"; not_ok "$name: no test sees it" ;;
            124) ok "$name (hangs)" ;;
            *) ok "$name ($(grep -m 1 -oE "$finding" "$work/log" | sed 's/^\[  FAILED  \] //' | cut -c -70))" ;;
        esac
    fi
}
