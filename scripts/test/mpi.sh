# shellcheck shell=bash
# Helpers of the scripts that start ranks, after tap.sh: starting them, a toy to train, exit codes.
. scripts/test/toy.sh

# has_mpi [PROGRAM]: can it be started as ranks?
has_mpi() { command -v mpirun > /dev/null && ! "${1:-$train_gpt}" --version | grep -q '^MPI *no'; }
# needs_mpi WHAT: the test ends here, skipped, where no ranks can be started.
needs_mpi() { has_mpi || { skip "$1" "no mpirun here, or built without MPI"; exit; }; }

# Root is refused, and so are more ranks than cores, unless one insists; and who waits must not spin.
# Ranks that hang are ended, with code 124, after RANKS_LIMIT seconds.
limit=${RANKS_LIMIT:-600}
launch() {
    local ranks=$1 code; shift
    timeout "$limit" mpirun -np "$ranks" --allow-run-as-root --oversubscribe --mca mpi_yield_when_idle 1 "$@"
    code=$?
    [ $code != 124 ] || echo "out of time after $limit s" >&2
    return $code
}

# Each rank notes its exit code in $work/code.RANK. mpirun ends the others when one has failed, by SIGTERM,
# which the shell around a rank and the rank itself do without, and by SIGKILL a second later, too early for
# a rank that a busy machine lets wait: so it hears of no failure.
codes() {
    local ranks=$1; shift
    rm -f "$work"/code.*
    launch "$ranks" bash -c 'trap "" TERM; "${@:2}"; code=$?; echo $code > "$1/code.$OMPI_COMM_WORLD_RANK"' \
        _ "$work" "$@"
}
same_codes() {  # NAME CODE RANKS
    local found
    found=$(cat "$work"/code.* 2> /dev/null | sort | uniq -c | tr -s ' \n' ' ')
    [ "$found" = " $3 $2 " ] && ok "$1: $3 ranks exit with $2" || { echo "codes:$found"; not_ok "$1: $3 ranks exit with $2"; }
}

# wait_at_most SECONDS PID...: waits for the first, a child of this shell; all are killed if that takes too
# long. $code is its exit code.
wait_at_most() {
    local seconds=$1; shift
    timeout "$seconds" tail -s 0.1 --pid="$1" -f /dev/null || kill -KILL "$@" 2> /dev/null
    wait "$1" 2> /dev/null
    code=$?
}

# killed_beside READY COMMAND...: of two ranks the second is killed as soon as READY succeeds. The first one must
# end by itself, $gone seconds later and with $code: mpirun would end it only much later.
killed_beside() {
    local ready=$1 ranks start=$SECONDS; shift
    rm -f "$work/pid" "$work/code"
    launch 2 --mca odls_base_sigkill_timeout 20 bash -c 'trap "" TERM
        if [ $OMPI_COMM_WORLD_RANK = 1 ]; then echo $$ > "$1/pid"; exec "${@:2}"; fi
        "${@:2}"; echo $? > "$1/code"' _ "$work" "$@" > "$work/out" 2> "$work/err" &
    ranks=$!
    until eval "$ready" || [ $((SECONDS - start)) -gt 60 ]; do sleep 0.2; done
    kill -9 "$(cat "$work/pid")"
    start=$SECONDS
    until [ -s "$work/code" ] || [ $((SECONDS - start)) -gt 30 ]; do sleep 0.2; done
    gone=$((SECONDS - start))
    wait $ranks
    code=$(cat "$work/code" 2> /dev/null)
}

# The toy with 12 micro-batches a step: the options are in ${toy[@]}.
toy_ranks() {
    toy_data
    toy+=(--micro-batch 1 --batch-tokens 372 --warmup-steps 5)
}
