#!/usr/bin/env bash
# The first minutes on a GPU, in one command: is everything right, and how fast is it?
#
#   scripts/gpu_check.sh                 build here (nvcc needed; MPI not), check, measure, report
#   scripts/gpu_check.sh --pack DIR      on a machine without a GPU: build for GPUs, and put the
#                                        programs, their libraries and a data set into DIR
#   scripts/gpu_check.sh --from DIR      use what was packed; needs only a driver, cuBLAS and bash
#   scripts/gpu_check.sh --sim           the same steps in the simulator, tiny: a test of this script
#
# Writes NAME.md and NAME.json to --out DIR (default dev/results), NAME = gpu_check. Takes at most 8
# minutes: each part has a limit of its own, and a part that fails is reported, not fatal.
# Environment: GPU_ARCH for the build (default "80 90" when packing), PYTHON for the PyTorch twin.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2
from="" pack="" sim="" out=dev/results
while [ $# -gt 0 ]; do
    case $1 in
        --pack) pack=$2; shift 2 ;;
        --from) from=$2; shift 2 ;;
        --out) out=$2; shift 2 ;;
        --sim) sim=1; shift ;;
        *) sed -n '2,14p' "$0" >&2; exit 2 ;;
    esac
done
make=${MAKE:-make}
programs=(train_gpt test_gpt unit_tests kernels)

# ---- building and packing
# Text of this repository as bytes: the speed of training does not depend on the text.
data_make() { # TRAIN_GPT DIR
    cat README.md llmc/*/*.h llmc/*/*.cpp llmc/*/*.cu > "$2/text" &&
        "$1" tokenize "$2/text" --tokenizer byte --out "$2/data" > "$2/tokenize.log" 2>&1 && rm "$2/text"
}
build_for_gpu() { # ARCHITECTURES BUILD
    "$make" -j"$(nproc)" CUDA=1 MPI=0 ARCH=x86-64-v3 GPU_ARCH="$1" BUILD="$2" \
        "${programs[@]/#/$2/}"
}
if [ -n "$pack" ]; then
    build_for_gpu "${GPU_ARCH:-80 90}" build/gpu || exit 4
    mkdir -p "$pack/bin" "$pack/lib" || exit 4
    cp "${programs[@]/#/build/gpu/}" "$pack/bin/" || exit 4
    # All libraries but those of the C library, which must be the machine's own.
    ldd "${programs[@]/#/build/gpu/}" | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
        grep -vE '/(libc|libm|libdl|librt|libpthread|ld-linux-x86-64)\.so' |
        xargs -I{} cp -L {} "$pack/lib/" || exit 4
    data_make build/gpu/train_gpt "$pack" || exit 4
    strip --strip-debug "$pack"/bin/* 2> /dev/null
    du -sh "$pack"
    exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -n "$sim" ]; then
    bin=build/sim model=gpt2:d1 batches="2" T=32 V=257 steps=4 kernel_sizes=(1 32 64 257) limit=300
    shape=(1 1 64)
elif [ -n "$from" ]; then
    bin=$from/bin
    [ -x "$bin/kernels" ] || { echo "no packed programs in $from; scripts/gpu_check.sh --pack DIR makes them" >&2; exit 2; }
    export LD_LIBRARY_PATH=$from/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
else
    build_for_gpu "${GPU_ARCH:-}" build/gpu > "$work/build.log" 2>&1 || {
        tail -n 20 "$work/build.log" >&2
        echo "cannot build here; on a machine that can: scripts/gpu_check.sh --pack DIR, then --from DIR" >&2
        exit 4
    }
    bin=build/gpu
fi
if [ -z "$sim" ]; then
    # Without a GPU nothing below can be measured: the program says why there is none.
    name=$("$bin/kernels" gpu) || exit
    echo "checking $name" >&2
    model=gpt2:124M batches="128 64 32 16 8 4" T=1024 V=50257 steps=60 kernel_sizes=(16 1024 768) limit=100
    shape=(12 12 768)
fi
data=${from:-$work}
[ -n "$from" ] || data_make "$bin/train_gpt" "$work" || { cat "$work/tokenize.log" >&2; exit 4; }
mkdir -p "$out" || exit 4

# ---- the report: every part adds a section to the Markdown and a member to the JSON
md=$out/gpu_check.md json=$out/gpu_check.json
members=()
member() { members+=("\"$1\":$2"); } # NAME JSON
part() { printf '\n## %s\n' "$1" >> "$md"; echo "== $1" >&2; }
failed=0
# run NAME LIMIT COMMAND...: output in $work/NAME; says how it ended.
run() {
    local name=$1 seconds=$2 begin=$SECONDS code; shift 2
    timeout -k 5 "$seconds" "$@" > "$work/$name" 2> "$work/$name.err" < /dev/null
    code=$?
    member "${name}_exit" $code
    member "${name}_seconds" $((SECONDS - begin))
    [ $code = 0 ] && return
    failed=1
    { echo; echo "**$name: exit code $code**"; echo '```'; tail -n 12 "$work/$name" "$work/$name.err"; echo '```'; } >> "$md"
    return $code
}
gtest_row() { # NAME
    local passed failed_tests skipped
    passed=$(grep -cE '^\[ +OK \]' "$work/$1")
    failed_tests=$(grep -E '^\[ +FAILED +\]' "$work/$1" | grep -c '(.* ms)')
    skipped=$(grep -E '^\[ +SKIPPED +\]' "$work/$1" | grep -c '(.* ms)')
    echo "| $1 | $passed | $failed_tests | $skipped |" >> "$md"
    member "$1" "{\"passed\":$passed,\"failed\":$failed_tests,\"skipped\":$skipped}"
}

begin=$SECONDS
gpu=$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2> /dev/null | head -n 1)
{
    echo "# GPU check"
    echo
    echo "- machine: ${gpu:-no nvidia-smi}, $(nproc) CPU cores"
    echo "- program: $("$bin/train_gpt" --version | head -n 1)"
    echo "- command: \`scripts/gpu_check.sh${sim:+ --sim}${from:+ --from DIR}\`"
    [ -z "$sim" ] || echo "- **in the simulator: a test of the script; its times mean nothing**"
} > "$md"
member machine "\"${gpu:-none}\""

part "Right or wrong"
printf '\n| tests | passed | failed | skipped |\n|---|---|---|---|\n' >> "$md"
if [ -n "$sim" ]; then only=(--gtest_filter='*recomputing*:cuda_absence*'); else only=(); fi
run test_gpt "$limit" "$bin/test_gpt" "${only[@]}"
gtest_row test_gpt
if [ -z "$sim" ]; then
    run kernel_tests "$limit" "$bin/unit_tests" --gtest_filter='*cuda*'
    gtest_row kernel_tests
fi
if command -v compute-sanitizer > /dev/null && [ -z "$sim" ]; then
    toy=("$bin/train_gpt" --device cuda --model gpt2:d1 --data "$data/data_train_*.bin" --steps 2
        --micro-batch 1 --seq-len 64 --save-every 0 --dtype bf16)
    for tool in memcheck racecheck synccheck; do
        run "sanitizer_$tool" 40 compute-sanitizer --tool $tool --error-exitcode 1 "${toy[@]}" \
            --out "$work/toy_$tool" && printf '\ncompute-sanitizer, %s: no finding\n' "$tool" >> "$md"
    done
else
    printf '\ncompute-sanitizer is not here.\n' >> "$md"
fi

part "Kernels"
# A line of a kernel has the fields kernel, us, gb_per_s or tflops, share.
run kernels "$limit" "$bin/kernels" "${kernel_sizes[@]}"
ceilings=$(grep '^{"device"' "$work/kernels" || echo null)
member ceilings "$ceilings"
member kernels "[$(grep '^{"kernel"' "$work/kernels" | paste -sd,)]"
field() { sed -nE "s/.*\"$1\":\"?([^,\"}]*).*/\1/p" <<< "$2"; }
peak=$(field gemm_tflops "$ceilings")
printf '\nMeasured first: a copy moves %s GB/s, a bf16 product of %s^3 reaches %s TFLOP/s. Shares are of these.\n\n' \
    "$(field copy_gb_per_s "$ceilings")" "$(field gemm_n "$ceilings")" "$peak" >> "$md"
echo '| kernel | us | GB/s | TFLOP/s | share |' >> "$md"
echo '|---|---|---|---|---|' >> "$md"
grep '^{"kernel"' "$work/kernels" | while read -r line; do
    echo "| $(field kernel "$line") | $(field us "$line") | $(field gb_per_s "$line") | $(field tflops "$line") | $(field share "$line") |"
done >> "$md"

part "Training"
# The largest micro-batch whose plan leaves a tenth of the memory free.
memory=$(field memory "$ceilings")
for B in $batches; do
    planned=$("$bin/train_gpt" plan --device cuda --dtype bf16 --model "$model" --vocab-size "$V" \
        --micro-batch "$B" --seq-len "$T" 2> "$work/plan.err" | awk '/^total memory/ { gsub(",", "", $3); print $3 }')
    [ -n "$planned" ] && [ -n "$memory" ] && [ "$planned" -le $((memory / 10 * 9)) ] && break
done
run train $((limit + 20)) "$bin/train_gpt" --device cuda --dtype bf16 --model "$model" --vocab-size "$V" \
    --data "$data/data_train_*.bin" --out "$work/run" --steps "$steps" --micro-batch "$B" --seq-len "$T" \
    --warmup-steps 2 --lr 3e-4 --save-every 0 --val-every 0
steps_done=$(grep -c '"loss"' "$work/run/log.jsonl" 2> /dev/null)
# Median over all but the first fifth of the steps.
median() { sort -n | awk '{ x[NR] = $1 } END { if (NR) print x[int((NR + 1) / 2)] }'; }
speed=$(sed -nE 's/.*"tokens_per_s":([0-9.e+]+).*/\1/p' "$work/run/log.jsonl" 2> /dev/null |
    tail -n +$((steps / 5 + 1)) | median)
losses=$(sed -nE 's/.*"loss":([0-9.e+-]+).*/\1/p' "$work/run/log.jsonl" 2> /dev/null)
# Operations a token: 6 N + 12 L A T (llmc/train/log.h), A = C in GPT-2; N and shape of the model as trained.
params=$("$bin/train_gpt" plan --device cuda --model "$model" --vocab-size "$V" --seq-len "$T" --micro-batch 1 2> /dev/null |
    sed -nE 's/^model .*: ([0-9,]+) parameters.*/\1/p' | tr -d ,)
mfu=$(awk -v s="${speed:-0}" -v n="${params:-0}" -v l="${shape[0]}" -v c="${shape[2]}" -v t=$T -v peak="${peak:-0}" \
    'BEGIN { if (s > 0 && n > 0 && peak > 0) printf "%.3f", s * (6 * n + 12 * l * c * t) / (peak * 1e12); else print "null" }')
{
    echo
    echo "| model | micro-batch | steps | tokens/s | of the measured product's peak | first loss | last loss |"
    echo "|---|---|---|---|---|---|---|"
    echo "| $model bf16, T=$T | $B | ${steps_done:-0} | ${speed:-none} | $mfu | $(head -n 1 <<< "$losses") | $(tail -n 1 <<< "$losses") |"
} >> "$md"
member training "{\"model\":\"$model\",\"micro_batch\":$B,\"seq_len\":$T,\"parameters\":${params:-null},\"steps\":${steps_done:-0},\"tokens_per_s\":${speed:-null},\"share_of_peak\":$mfu,\"first_loss\":$(head -n 1 <<< "${losses:-null}"),\"last_loss\":$(tail -n 1 <<< "${losses:-null}")}"

part "PyTorch beside it"
for python in ${PYTHON:-python3 /usr/bin/python3}; do "$python" -c 'import torch' 2> /dev/null && break; done
if "$python" -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2> /dev/null || [ -n "$sim" ]; then
    # Its graph and loss in fp32 need more memory than our run: half the batch if the first fails.
    for b in "$B" $((B / 2)) $((B / 4)); do
        [ "$b" -gt 0 ] || break
        timeout 120 "$python" dev/gpu_check/torch_twin.py "${shape[@]}" "$b" $T $((steps / 2)) \
            > "$work/torch" 2> "$work/torch.err" < /dev/null && break
    done
    if [ -s "$work/torch" ]; then
        line=$(tail -n 1 "$work/torch")
        printf '\ntorch %s, compiled, micro-batch %s: %s tokens/s\n' "$(field torch "$line")" "$b" "$(field tokens_per_s "$line")" >> "$md"
        member torch "$line"
    else
        { echo; echo '```'; tail -n 5 "$work/torch.err"; echo '```'; } >> "$md"
        member torch null
    fi
else
    printf '\nNo PyTorch that sees a GPU.\n' >> "$md"
    member torch null
fi

member seconds $((SECONDS - begin))
printf '\nTook %d s.\n' $((SECONDS - begin)) >> "$md"
(IFS=,; echo "{${members[*]}}") > "$json"
echo "wrote $md and $json" >&2
exit $failed
