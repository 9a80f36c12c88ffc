# shellcheck shell=bash
# --async-save of many ranks, after mpi.sh: on a slow disk, a save after every step, so that each waits for
# the one before. $train_gpt is the program.

# The path of the library that disturbs files (dev/fault); it is built with the trainer for the CPU.
fault_library() { echo "$(cd "${BUILD:-build}" && pwd)/fault/libfault.so"; }

# saved_behind NAME RANKS STEPS [OPTION OF MPIRUN...] -- OPTIONS...: whatever training did meanwhile, each save
# holds the state of its step, and a run that goes on from the first one ends like the others. Then a save
# fails on the last rank, in the middle of its file: all know, training goes on, and the next save is good.
saved_behind() {
    local name=$1 ranks=$2 steps=$3 hosts=() bad="" step path fault there; shift 3
    while [ "$1" != -- ]; do hosts+=("$1"); shift; done
    shift
    local start=(launch "$ranks" "${hosts[@]}") options=("$@" --steps "$steps" --keep 99 --save-every 1)
    fault=$(fault_library) there=$(cd "$work" && pwd -P)/behind
    if [ ! -e "$fault" ]; then skip "$name" "no $fault; make test builds it"; return; fi
    rm -rf "$work/at-once" "$there" "$there-resumed" "$there-torn"

    run() { "$@" > "$work/out" 2> "$work/err" || { tail -n 5 "$work/err"; bad+=" exit"; }; }
    run "${start[@]}" "$train_gpt" "${options[@]}" --out "$work/at-once"
    run "${start[@]}" env FAULT_DIR="$there" FAULT_DELAY_MS=3 LD_PRELOAD="$fault" \
        "$train_gpt" "${options[@]}" --async-save --out "$there"
    for step in $(seq "$steps"); do
        path=ckpt/step-$(printf %010d "$step")
        [ -n "$(state "$there/$path")" ] && [ "$(state "$there/$path")" = "$(state "$work/at-once/$path")" ] || bad+=" $step(state)"
        # Said to be saved when the next step was done; the last save is not behind anything.
        [ "$step" = "$steps" ] || awk -v saved="\"step\":$step,\"event\":\"save\"" -v next_step="\"step\":$((step + 1)),\"loss\"" \
            'index($0, next_step) { done = 1 } index($0, saved) { found = done } END { exit !found }' "$there/log.jsonl" || bad+=" $step(not behind)"
    done
    run "${start[@]}" "$train_gpt" "${options[@]}" --save-every 0 --resume "$there/ckpt/step-0000000001" --out "$there-resumed"
    [ "$(state "$there-resumed")" = "$(state "$work/at-once")" ] || bad+=" resumed"
    [ -z "$bad" ] && ok "$name: each save is the state of its step" || { echo "bad:$bad"; not_ok "$name: each save is the state of its step"; }

    [ "$ranks" = 1 ] && return
    expect "$name: a save that fails on one rank" 0 "NOT SAVED: rank $((ranks - 1)): " "training goes on" "step $steps/$steps" -- \
        "${start[@]}" bash -c '[ $OMPI_COMM_WORLD_RANK = $0 ] && export FAULT_DIR=$1 FAULT_FAIL_AT=15 FAULT_FAIL_ERRNO=28 LD_PRELOAD=$2
            exec "${@:3}"' $((ranks - 1)) "$there-torn" "$fault" "$train_gpt" "${options[@]}" --async-save --out "$there-torn"
    path=ckpt/step-$(printf %010d "$steps")
    [ "$(state "$there-torn/$path")" = "$(state "$work/at-once")" ] && [ ! -e "$there-torn/ckpt/step-0000000001" ] &&
        [ -e "$there-torn/ckpt/step-0000000002" ] && ok "$name: and the next one is good" ||
        { ls "$there-torn/ckpt"; not_ok "$name: and the next one is good"; }
}
