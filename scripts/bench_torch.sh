#!/usr/bin/env bash
# Our training step and PyTorch's, one after the other in one run on this machine:
#   scripts/bench_torch.sh            GPT-2 124M at B=4 T=256 and B=2 T=1024
# PyTorch is Debian's (python3-torch), pointed at the OpenBLAS for OpenMP.
set -euo pipefail
cd "$(dirname "$0")/.."
: "${BUILD:=build}" "${PYTHON:=/usr/bin/python3}"
${MAKE:-make} -s "$BUILD/bench"
blas=$(ls -d /usr/lib/*-linux-gnu/openblas-openmp 2> /dev/null | head -n 1) || {
    echo "error: no OpenBLAS for OpenMP on this machine; hint: the Debian package libopenblas-openmp-dev" >&2
    exit 4
}
# An OpenBLAS that does not know the CPU falls back to kernels of 2004 (llmc/ops/blas.cpp chooses likewise).
core=Haswell
grep -q avx512bw /proc/cpuinfo && core=SkylakeX
: "${OPENBLAS_CORETYPE:=$core}"
for shape in "4 256" "2 1024"; do
    read -r B T <<< "$shape"
    ours=$("$BUILD/bench" gpt2:124M "$B" "$T" | tee -a /dev/stderr | sed -nE 's/.* ([0-9.]+) tokens\/s.*/\1/p' | head -n 1)
    theirs=$(LD_LIBRARY_PATH=$blas OPENBLAS_CORETYPE=$OPENBLAS_CORETYPE "$PYTHON" dev/reference/bench_torch.py 12 12 768 50304 "$B" "$T" |
        tee -a /dev/stderr | sed -nE 's/.* ([0-9.]+) tokens\/s.*/\1/p')
    awk -v a="$ours" -v b="$theirs" 'BEGIN { printf "ratio %.2f\n\n", a / b }'
done
