#!/bin/bash
# scripts/save_table.sh FILE "MAKE GOAL" "TITLE" COMMAND...: runs COMMAND and shows its output; if it
# succeeds, FILE becomes that output below the title and how it was made.
set -euo pipefail
file=$1 goal=$2 title=$3
shift 3
output=$(mktemp)
trap 'rm -f "$output"' EXIT
"$@" | tee "$output"
{
    printf '# %s\n\n`make %s` (%s) writes this file.\n\n' "$title" "$goal" "$*"
    cat "$output"
} > "$file"
