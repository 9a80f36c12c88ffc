#!/bin/bash
# scripts/ladder_table.sh LADDER: runs the ladder program and puts its tables into
# dev/ladder/README.md, between the two marks.
set -euo pipefail
ladder=$(realpath "$1")
cd "$(dirname "$0")/.."
readme=dev/ladder/README.md
tables=$(mktemp)
trap 'rm -f "$tables"' EXIT
"$ladder" > "$tables"
awk -v tables="$tables" '
    /<!-- end of tables -->/ { inside = 0 }
    !inside                  { print }
    /<!-- tables:/           { inside = 1; while ((getline line < tables) > 0) print line; print "" }
' "$readme" > "$readme.new"
mv "$readme.new" "$readme"
