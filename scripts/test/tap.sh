# shellcheck shell=bash
# Helpers of the *_test.sh scripts: results in the Test Anything Protocol (see scripts/run_tests.sh).
# Sourced with the repository as the current folder; $work is an empty folder that goes away.
# With TAP_FAIL_FAST=1 the script ends at what fails first.
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
count=0

ok() { count=$((count + 1)); echo "ok $count - $1"; }
not_ok() {
    count=$((count + 1))
    echo "not ok $count - $1"
    [ -z "${TAP_FAIL_FAST:-}" ] || exit 1
}
# Whether a loop that collects its findings in $bad may end.
enough() { [ -n "${TAP_FAIL_FAST:-}" ] && [ -n "$bad" ]; }
skip() { count=$((count + 1)); echo "ok $count - $1 # SKIP $2"; }

# is NAME COMMAND...: passes if the command succeeds; its output is shown only if it fails.
is() {
    local name=$1; shift
    if "$@" > "$work/.is" 2>&1; then ok "$name"; else cat "$work/.is"; not_ok "$name"; fi
}

# expect NAME CODE [FRAGMENT...] -- COMMAND...: the exit code, and texts that stdout or stderr hold.
# A fragment that begins with ! must not occur.
expect() {
    local name=$1 code=$2 fragments=() found fragment; shift 2
    while [ "$1" != -- ]; do fragments+=("$1"); shift; done
    shift
    "$@" > "$work/.out" 2> "$work/.err" < /dev/null
    found=$?
    cat "$work/.out" "$work/.err" > "$work/.all"
    if [ $found != "$code" ]; then
        echo "$*"
        cat "$work/.all"
        echo "exit code $found, expected $code"
        not_ok "$name"
        return
    fi
    for fragment in "${fragments[@]}"; do
        if [ "${fragment#!}" != "$fragment" ] && ! grep -qF -e "${fragment#!}" "$work/.all"; then continue; fi
        if [ "${fragment#!}" = "$fragment" ] && grep -qF -e "$fragment" "$work/.all"; then continue; fi
        echo "$*"
        cat "$work/.all"
        echo "wrong about: $fragment"
        not_ok "$name"
        return
    done
    ok "$name"
}
