#!/bin/bash
# scripts/ptxas_table.sh [ARCH...]: what ptxas made of every kernel, as a Markdown table.
#
# Registers and static shared memory of each kernel for each architecture (default sm_80 sm_89
# sm_90), spills where there are any. Needs nvcc, no GPU. Exits 1 on a spill or a compiler warning.
set -euo pipefail
cd "$(dirname "$0")/.."
nvcc=${NVCC:-nvcc}
archs=${*:-sm_80 sm_89 sm_90}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

status=0
for arch in $archs; do
    for source in llmc/*/*.cu; do
        case $source in *_test.cu) continue ;; esac
        log=$work/log
        if ! $nvcc -std=c++20 -arch="$arch" -I. -DLLMC_CUDA -Xptxas -v -Xcompiler -Wall,-Wextra \
            -c "$source" -o "$work/object" 2> "$log"; then
            cat "$log" >&2
            exit 1
        fi
        if grep -i warning "$log" >&2; then status=1; fi
        # "Compiling entry function 'NAME'", then a line with spills, then one with registers.
        awk -v arch="$arch" '
            /Compiling entry function/ { split($0, part, "\047"); name = part[2] }
            /bytes spill stores/       { for (i = 1; i < NF; i++) if ($(i + 1) == "bytes" && $(i + 2) == "spill") spill += $i }
            /Used [0-9]+ registers/ {
                for (i = 1; i < NF; i++) if ($i == "Used") registers = $(i + 1)
                shared = match($0, /[0-9]+ bytes smem/) ? substr($0, RSTART, RLENGTH) + 0 : 0
                print name "\t" arch "\t" registers "\t" shared "\t" spill + 0
                spill = 0
            }' "$log" >> "$work/rows"
    done
done

# One line a kernel: registers for each architecture, shared memory, spilled bytes.
cut -f1 "$work/rows" | c++filt | paste - <(cut -f2- "$work/rows") |
    sed -e 's/(anonymous namespace):://g' -e 's/^void //' |
    awk -F'\t' -v archs="$archs" '
        {
            # Drop the argument list: what follows the last template bracket, or the first "(".
            name = $1
            depth = 0
            for (i = 1; i <= length(name); i++) {
                c = substr(name, i, 1)
                if (c == "<") depth++
                else if (c == ">") depth--
                else if (c == "(" && depth == 0) break
            }
            name = substr(name, 1, i - 1)
            if (!(name in seen)) { seen[name] = 1; order[++count] = name }
            cell[name, $2] = $3 ($5 > 0 ? " (spills " $5 ")" : "")
            shared[name] = $4
            spilled += $5
        }
        END {
            n = split(archs, arch, " ")
            printf "| kernel | static shared |"
            for (a = 1; a <= n; a++) printf " %s registers |", arch[a]
            printf "\n|---|---|"
            for (a = 1; a <= n; a++) printf "---|"
            print ""
            for (k = 1; k <= count; k++) {
                printf "| `%s` | %d |", order[k], shared[order[k]]
                for (a = 1; a <= n; a++) printf " %s |", cell[order[k], arch[a]]
                print ""
            }
            printf "\n%d kernels, %d bytes spilled\n", count, spilled
            exit spilled > 0
        }' || status=1
exit $status
