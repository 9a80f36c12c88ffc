#!/usr/bin/env bash
# What becomes of a run when something happens to one of its ranks: all are gone within 10 s with a
# code that is not 0, the checkpoints are valid, and the resumed run is the run that was not disturbed.
. scripts/test/tap.sh
export OMP_WAIT_POLICY=passive
train_gpt=${TRAIN_GPT:-build/train_gpt}

if ! command -v mpirun > /dev/null; then skip "faults of ranks" "no mpirun here"; exit; fi
if "$train_gpt" --version | grep -q '^MPI *no'; then skip "faults of ranks" "built without MPI"; exit; fi
. scripts/test/mpi.sh

toy_ranks
toy+=(--val-every 0)
short=("${toy[@]}" --steps 250)
"$train_gpt" "${short[@]}" --out "$work/one" --save-every 0 > "$work/out" 2>&1 || { cat "$work/out"; not_ok "one rank"; }
final=$(state "$work/one")

# Seconds that mpirun gives ranks between SIGTERM and SIGKILL.
patience=1
# run_in_background RANKS OPTIONS...: $mpirun is its process, ${rank[@]} are the ranks'; waits for steps.
run_in_background() {
    local ranks=$1; shift
    : > "$work/out"; : > "$work/err"
    # Ranks write to files of their own: a mpirun that is told to end no longer reads their pipes.
    setsid mpirun -np "$ranks" --allow-run-as-root --oversubscribe --mca mpi_yield_when_idle 1 \
        --mca odls_base_sigkill_timeout "$patience" bash -c 'exec "${@:2}" >> "$1/out" 2>> "$1/err"' _ "$work" \
        "$train_gpt" "$@" > /dev/null 2> "$work/mpirun.err" &
    mpirun=$!
    for _ in $(seq 200); do grep -q '^step' "$work/out" && break; sleep 0.05; done
    mapfile -t rank < <(ps -o pid= --ppid "$mpirun" | tr -d ' ' | sort -n)
}
# Waits for the end: $code, $seconds, and whether any rank is left.
wait_gone() {
    local start=$SECONDS
    wait "$mpirun"
    code=$?
    seconds=$((SECONDS - start)) left=""
    for pid in "${rank[@]}"; do [ -e "/proc/$pid/exe" ] && left+=" $pid"; done
}
gone() {  # NAME CODE-PATTERN
    if [[ $code == $2 ]] && [ $seconds -le 10 ] && [ -z "$left" ]; then ok "$1"; else
        echo "exit code $code after $seconds s, left:$left"; tail -n 5 "$work/err"; not_ok "$1"; fi
}

# ---- a rank is killed, at any time: in forward, backward, a collective, a save
kills=4
[ "${TEST_DEEP:-}" = 1 ] && kills=40
bad="" rm_out="$work/killed"
for i in $(seq $kills); do
    rm -rf "$rm_out"
    run_in_background 3 "${short[@]}" --zero $((i % 4)) --save-every $((i % 3 + 1)) --out "$work/killed"
    sleep "0.$((RANDOM % 900 + 100))"
    kill -KILL "${rank[$((i % 3))]}" 2> /dev/null
    wait_gone
    { [ $code != 0 ] && [ $seconds -le 10 ] && [ -z "$left" ]; } || bad+=" $i(exit $code, $seconds s, left:$left)"
    launch 2 "$train_gpt" "${short[@]}" --zero 1 --save-every 0 --out "$work/killed" > "$work/out" 2> "$work/err" || { tail -n 3 "$work/err"; bad+=" $i(resume)"; }
    [ "$(state "$work/killed")" = "$final" ] || bad+=" $i(state)"
done
[ -z "$bad" ] && ok "$kills kills of a rank: all gone, and resumed on 2 ranks to the same bits" || { echo "bad:$bad"; not_ok "kills of a rank"; }

# ---- a rank is stopped: the watchdogs of the others see it
long=("${toy[@]}" --steps 1000000 --save-every 0)
run_in_background 3 "${long[@]}" --out "$work/stopped" --step-limit 3
kill -STOP "${rank[1]}"
wait_gone
gone "a stopped rank ends the run with 6" 6
grep -q "no progress for .* in step .*last collective #.*under way" "$work/err" \
    && grep -q "local rank 1 (process ${rank[1]}).*no sign of life" "$work/err" \
    && ok "the message names step, collective and rank" || { cat "$work/err"; not_ok "the message names step, collective and rank"; }
expect "no alarm in a run longer than the limit" 0 "step 250/250" -- \
    launch 2 "$train_gpt" "${short[@]}" --out "$work/slow" --save-every 0 --step-limit 1 --start-limit 20

# ---- signals: to one rank, to all, to mpirun
signal_case() {  # NAME SIGNAL PID...
    local name=$1 signal=$2 newest; shift 2
    sleep "0.$((RANDOM % 500))"
    kill "-$signal" "$@"
    wait_gone
    newest=$(ls "$work/signal/ckpt" | grep '^step-[0-9]*$' | tail -n 1)
    if [ -n "$newest" ] && grep -q "stopped by SIG$signal" "$work/out" && state "$work/signal/ckpt/$newest" > /dev/null; then
        ok "$name: a valid checkpoint"
    else
        tail -n 5 "$work/out" "$work/err"; not_ok "$name: a valid checkpoint"
    fi
}
run_in_background 3 "${long[@]}" --out "$work/signal"
signal_case "SIGTERM to one rank" TERM "${rank[1]}"
gone "SIGTERM to one rank: exit code 7" 7
run_in_background 3 "${long[@]}" --out "$work/signal"
signal_case "SIGINT to all ranks" INT "${rank[@]}"
gone "SIGINT to all ranks: exit code 7" 7
run_in_background 2 "${long[@]}" --out "$work/signal"
signal_case "SIGUSR1 to mpirun" USR1 "$mpirun"
gone "SIGUSR1 to mpirun: exit code 7" 7
patience=3
run_in_background 4 "${long[@]}" --out "$work/signal"
signal_case "SIGTERM to mpirun" TERM "$mpirun"
gone "SIGTERM to mpirun: not 0" '[1-9]*'

# ---- started again after a crash, with fewer ranks
cat > "$work/crash" << 'EOF'
# A rank that dies in every run of 3 ranks, as on a broken machine.
if [ "$OMPI_COMM_WORLD_SIZE" = 3 ] && [ "$OMPI_COMM_WORLD_RANK" = 2 ]; then
    "$@" & sleep 1.5; kill -KILL $!; wait; exit 9
fi
exec "$@"
EOF
expect "run_with_restart.sh shrinks and finishes" 0 "starting with 3 ranks" "starting with 2 ranks" -- \
    scripts/run_with_restart.sh --ranks "3 2" --pause 0 --out "$work/elastic" -- \
    mpirun -np RANKS --allow-run-as-root --oversubscribe --mca mpi_yield_when_idle 1 bash "$work/crash" \
    "$train_gpt" "${short[@]}" --steps 250 --save-every 100 --out "$work/elastic"
[ "$(state "$work/elastic")" = "$final" ] && ok "with the same bits" || not_ok "with the same bits"
expect "run_with_restart.sh gives up" 9 "giving up at the beginning" -- \
    scripts/run_with_restart.sh --ranks "2 1" --pause 0 --tries 2 --out "$work/never" -- bash -c 'exit 9'
expect "run_with_restart.sh repeats no usage error" 2 "unknown option" "!giving up" -- \
    scripts/run_with_restart.sh --ranks 2 --out "$work/never" -- "$train_gpt" --no-such-option
