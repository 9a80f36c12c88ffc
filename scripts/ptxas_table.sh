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

# compile ARCH SOURCE: leaves the compiler's remarks in $work.
compile() {
    local log=$work/${2//\//-}.$1.log
    "$nvcc" -std=c++20 -O3 -arch="$1" -I. -DLLMC_CUDA -Xptxas -v -Xcompiler -Wall,-Wextra -c "$2" \
        -o "$log.o" 2> "$log" || mv "$log" "$log.failed"
}
export -f compile
export nvcc work
for arch in $archs; do
    find llmc -name '*.cu' ! -name '*_test.cu' | sort | sed "s/^/$arch /"
done | xargs -P "$(nproc)" -n 2 bash -c 'compile "$@"' _

if ls "$work"/*.failed > /dev/null 2>&1; then
    cat "$work"/*.failed >&2
    exit 1
fi
status=0
if grep -i warning "$work"/*.log >&2; then status=1; fi
for arch in $archs; do
    # "Compiling entry function 'NAME'", then a line with spills, then one with registers.
    cat "$work"/*."$arch".log | awk -v arch="$arch" '
        /Compiling entry function/ { split($0, part, "\047"); name = part[2] }
        /bytes spill stores/ {
            for (i = 1; i < NF; i++)
                if ($(i + 1) == "bytes" && $(i + 2) == "spill") spill += $i
        }
        /Used [0-9]+ registers/ {
            for (i = 1; i < NF; i++) if ($i == "Used") registers = $(i + 1)
            shared = match($0, /[0-9]+ bytes smem/) ? substr($0, RSTART, RLENGTH) + 0 : 0
            print name "\t" arch "\t" registers "\t" shared "\t" spill + 0
            spill = 0
        }' >> "$work/rows"
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
