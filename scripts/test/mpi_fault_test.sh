#!/usr/bin/env bash
# What becomes of a run when something happens to one of its ranks: all are gone within 10 s with a
# code that is not 0, the checkpoints are valid, and the resumed run is the run that was not disturbed.
. scripts/test/tap.sh
export OMP_WAIT_POLICY=passive
train_gpt=${TRAIN_GPT:-build/train_gpt}
. scripts/test/mpi.sh
needs_mpi "faults of ranks"

toy_ranks
toy+=(--val-every 0)
short=("${toy[@]}" --steps 250)
brief=("${toy[@]}" --steps 14)
long=("${toy[@]}" --steps 1000000 --save-every 0)
for run in short brief; do
    options="$run[@]"
    "$train_gpt" "${!options}" --out "$work/$run" --save-every 0 > "$work/out" 2>&1 || { cat "$work/out"; not_ok "one rank"; }
done
final=$(state "$work/short") final_brief=$(state "$work/brief")

# Seconds that mpirun gives ranks between SIGTERM and SIGKILL.
patience=1
# Ranks write to files of their own, so that the last words of all are seen; or to mpirun.
to_files=(bash -c 'exec "${@:2}" >> "$1/out" 2>> "$1/err"' _ "$work")
redirect=("${to_files[@]}")
# run_in_background RANKS OPTIONS...: $mpirun is its process, ${rank[@]} are the ranks'; waits for steps.
run_in_background() {
    local ranks=$1; shift
    : > "$work/out"; : > "$work/err"
    setsid mpirun -np "$ranks" --allow-run-as-root --oversubscribe --mca mpi_yield_when_idle 1 \
        --mca odls_base_sigkill_timeout "$patience" "${redirect[@]}" \
        "$train_gpt" "$@" > "$work/mpirun.out" 2> "$work/mpirun.err" &
    mpirun=$!
    for _ in $(seq 200); do cat "$work/out" "$work/mpirun.out" | grep -q '^step' && break; sleep 0.05; done
    mapfile -t rank < <(ps -o pid= --ppid "$mpirun" | tr -d ' ' | sort -n)
}
# Waits for the end: $code, $seconds, and whether any rank is left.
wait_gone() {
    local start=$SECONDS
    wait_at_most 30 "$mpirun" "${rank[@]}"
    seconds=$((SECONDS - start)) left=""
    for pid in "${rank[@]}"; do [ -e "/proc/$pid/exe" ] && left+=" $pid"; done
}
gone() {  # NAME CODE-PATTERN
    if [[ $code == $2 ]] && [ $seconds -le 10 ] && [ -z "$left" ]; then ok "$1"; else
        echo "exit code $code after $seconds s, left:$left"; tail -n 5 "$work/err"; not_ok "$1"; fi
}

# ---- a rank is killed in each phase
# RANK PHASE STEP ZERO: SIGKILL from inside (dev/fault/kill.cpp). Checkpoints come every second step.
killed=$(dirname "$train_gpt")/fault/train_gpt_killed
[ -x "$killed" ] || not_ok "$killed is there"
cases=("2 forward 7 0" "0 forward 7 3" "1 backward 7 2" "0 backward 7 1 --async-save" "1 reduce 7 0" "2 reduce 7 1" "0 reduce 7 3"
    "1 update 7 1" "2 save 6 0" "0 save 6 3" "1 save 6 2 --async-save" "0 publish 6 1" "0 publish 6 2 --async-save")
[ "${TEST_DEEP:-}" = 1 ] && mapfile -t cases < <(for rank in 0 1 2; do for phase in forward backward reduce update save publish; do
    for zero in 0 1 2 3; do for async in "" --async-save; do
        [ $phase$rank = publish1 ] || [ $phase$rank = publish2 ] || echo "$rank $phase 7 $zero $async"; done; done; done; done)
bad=""
for case in "${cases[@]}"; do
    read -r who phase step zero async <<< "$case"
    rm -rf "$work/phase"
    # shellcheck disable=SC2086
    FAULT_KILL="$who $phase $step" launch 3 "$killed" "${brief[@]}" --zero "$zero" --save-every 2 $async --out "$work/phase" > "$work/out" 2> "$work/err"
    code=$?
    seconds=$(($(date +%s) - $(stat -c %Y "$work/phase/log.jsonl")))  # since the last line of the log
    { [ $code != 0 ] && [ $seconds -le 10 ]; } || bad+=" [$case: exit $code, $seconds s]"
    pgrep -f -- "--out $work/phase" > /dev/null && bad+=" [$case: ranks are left]"
    # The step under way was not finished, and what is on the disk is whole.
    [ "$(grep -c '"loss"' "$work/phase/log.jsonl")" -ge $((step - 1)) ] && [ ! -e "$work/phase/ckpt/step-0000000014" ] || bad+=" [$case: killed elsewhere]"
    launch 2 "$train_gpt" "${brief[@]}" --zero 1 --save-every 0 --out "$work/phase" > "$work/out" 2> "$work/err" || { tail -n 3 "$work/err"; bad+=" [$case: resume]"; }
    grep "refused" "$work/err" && bad+=" [$case: a checkpoint is not whole]"
    grep -qE "resumed at step (2|4|6)$" "$work/out" || { grep -m 1 "steps," "$work/out"; bad+=" [$case: newest checkpoint]"; }
    [ "$(state "$work/phase")" = "$final_brief" ] || bad+=" [$case: state]"
    ls "$work/phase/ckpt" | grep -q tmp && bad+=" [$case: something unfinished is left]"
    enough && break
done
[ -z "$bad" ] && ok "a rank killed in ${#cases[@]} cases of forward, backward, reduce, update, save: all gone, resumed to the same bits" \
    || { echo "bad:$bad"; not_ok "a rank killed in each phase"; }

# ---- a rank is killed, at any time: in forward, backward, a collective, a save
kills=4
[ "${TEST_DEEP:-}" = 1 ] && kills=40
bad="" rm_out="$work/killed"
for i in $(seq $kills); do
    rm -rf "$rm_out"
    # shellcheck disable=SC2046
    run_in_background 3 "${short[@]}" --zero $((i % 4)) --save-every $((i % 3 + 1)) $([ $((i % 2)) = 1 ] && echo --async-save) --out "$work/killed"
    sleep "0.$((RANDOM % 900 + 100))"
    kill -KILL "${rank[$((i % 3))]}" 2> /dev/null
    wait_gone
    { [ $code != 0 ] && [ $seconds -le 10 ] && [ -z "$left" ]; } || bad+=" $i(exit $code, $seconds s, left:$left)"
    launch 2 "$train_gpt" "${short[@]}" --zero 1 --save-every 0 --out "$work/killed" > "$work/out" 2> "$work/err" || { tail -n 3 "$work/err"; bad+=" $i(resume)"; }
    [ "$(state "$work/killed")" = "$final" ] || bad+=" $i(state)"
    enough && break
done
[ -z "$bad" ] && ok "$kills kills of a rank: all gone, and resumed on 2 ranks to the same bits" || { echo "bad:$bad"; not_ok "kills of a rank"; }

# ---- a rank is stopped: the watchdogs of the others see it
run_in_background 3 "${long[@]}" --out "$work/stopped" --step-limit 3
kill -STOP "${rank[1]}"
wait_gone
gone "a stopped rank ends the run with 6" 6
grep -q "no progress for .* in step .*last collective #.*under way" "$work/err" \
    && grep -q "local rank 1 (process ${rank[1]}).*no sign of life" "$work/err" \
    && ok "the message names step, collective and rank" || { cat "$work/err"; not_ok "the message names step, collective and rank"; }
# A process that ends well before it has begun: MPI would wait for it for ever.
expect "a rank that never comes ends the others with 6" 6 "came to MPI_Init" "within 2.0 s" -- \
    launch 3 bash -c '[ $OMPI_COMM_WORLD_RANK = 1 ] || exec "$@"' _ "$train_gpt" "${long[@]}" --out "$work/never" --start-limit 2

# Ranks that are not there yet when the others wait: one asks for help and leaves, one reads a pipe that
# nobody writes to, as on a file system that does not answer.
expect "a rank that only asks for help" 2 "--help or --version" "rank 1 was started with something else" -- \
    launch 2 bash -c 'if [ $OMPI_COMM_WORLD_RANK = 1 ]; then exec "$1" --help; fi; exec "$@"' _ "$train_gpt" "${long[@]}" --out "$work/never"
mkfifo "$work/pipe"
expect "a rank that hangs before it knows its options" 6 "no progress for" "at the start" -- \
    launch 2 bash -c 'if [ $OMPI_COMM_WORLD_RANK = 1 ]; then exec "$@" --config "$0"; fi; exec "$@"' "$work/pipe" "$train_gpt" "${long[@]}" --out "$work/never" --start-limit 2
[ ! -e "$work/never" ] && ok "nothing was written by what did not start" || not_ok "nothing was written by what did not start"

# ---- a rank computes on when another has been killed: no collective tells it for a minute
killed_beside 'grep -q "^ *ranks" "$work/out" && sleep 2' \
    "$train_gpt" "${toy[@]}" --steps 2 --warmup-steps 0 --batch-tokens 24800000 --save-every 0 --out "$work/alone"
[ "$code" = 6 ] && [ $gone -lt 10 ] && grep -q "is gone in step 1" "$work/err" && ok "a rank that computes on is gone within 10 s, code 6" \
    || { tail -n 5 "$work/err"; echo "exit code $code after $gone s"; not_ok "a rank that computes on is gone within 10 s, code 6"; }

# ---- no alarm where nothing hangs
# Steps that take longer than the limit: 24,000 micro-batches each.
expect "no alarm in a slow step" 0 "step 2/2" "!no progress" -- \
    launch 2 "$train_gpt" "${toy[@]}" --steps 2 --warmup-steps 0 --batch-tokens 744000 --out "$work/slow" --save-every 0 --step-limit 1 --start-limit 60
slow=$(sed -nE 's/.*"ms":([0-9]+).*/\1/p' "$work/slow/log.jsonl" | sort -n | head -n 1)
[ "$slow" -gt 1000 ] && ok "which it was" || skip "which it was" "a step takes $slow ms here"
# All ranks stopped for longer than the limit, as by ^Z, and then continued.
run_in_background 2 "${long[@]}" --out "$work/paused" --step-limit 3
kill -STOP "${rank[@]}"; sleep 4.5; kill -CONT "${rank[@]}"; sleep 1
kill -TERM "${rank[0]}"
wait_gone
gone "no alarm after a pause of the whole job" 7

# An error that all ranks meet waits for the save under way, however slow the disk: 12 s, in which no step ends.
libfault=$(dirname "$train_gpt")/fault/libfault.so
if [ -e "$libfault" ]; then
    slow_disk=$(cd "$work" && pwd -P)/diverges
    expect "a stop for non-finite numbers waits for a slow save" 5 "skipped in a row" "saved " "!no progress" -- \
        launch 2 env FAULT_DIR="$slow_disk" FAULT_DELAY_MS=20 LD_PRELOAD="$libfault" "$train_gpt" "${toy[@]}" --steps 40 --lr 1e30 --grad-clip 0 \
        --warmup-steps 0 --max-skipped 1 --save-every 1 --async-save --step-limit 1 --out "$slow_disk"
else
    skip "a stop for non-finite numbers waits for a slow save" "no $libfault"
fi

# ---- an error of one rank in the middle of a run: its file loses its end
mkdir "$work/disk0" "$work/disk1"
cp "$work"/d_* "$work/disk0"; cp "$work"/d_* "$work/disk1"; cp "$work/toy.json" "$work/disk0"; cp "$work/toy.json" "$work/disk1"
for zero in 0 3; do
    own=("${toy[@]}" --zero $zero --steps 1000000 --save-every 0 --out "$work/middle-$zero")
    own=("${own[@]//"$work/d_"/d_}")
    codes 2 bash -c 'cd "$0/disk$OMPI_COMM_WORLD_RANK" && exec "$@"' "$work" "$(realpath "$train_gpt")" "${own[@]}" > "$work/out" 2> "$work/err" &
    run=$!
    for _ in $(seq 200); do grep -q '^step' "$work/out" && break; sleep 0.05; done
    for shard in "$work"/disk1/d_train_*.bin; do truncate -s 1100 "$shard"; done
    start=$SECONDS
    wait $run
    same_codes "a file cut on one rank in mid-run, --zero $zero" 3 2
    [ $((SECONDS - start)) -le 10 ] && [ "$(grep -c 'error:' "$work/err")" = 1 ] && grep -q "rank 1/2.*d_train_" "$work/err" && ok "within 10 s, and that rank says so" \
        || { cat "$work/err"; not_ok "within 10 s, and that rank says so"; }
    cp "$work"/d_train_* "$work/disk1"
done

# ---- signals: to one rank, to all, to mpirun, at random times, also while a save is under way
signal_case() {  # NAME SIGNAL RANKS TARGET CODE-PATTERN OPTIONS...
    local name=$1 signal=$2 ranks=$3 target=$4 expected=$5 newest pids; shift 5
    rm -rf "$work/signal"
    run_in_background "$ranks" "${long[@]}" "$@" --out "$work/signal"
    case $target in one) pids=("${rank[1]}") ;; all) pids=("${rank[@]}") ;; mpirun) pids=("$mpirun") ;; esac
    sleep "0.$(printf %03d $((RANDOM % 1000)))"
    kill "-$signal" "${pids[@]}"
    wait_gone
    newest=$(ls "$work/signal/ckpt" | grep '^step-[0-9]*$' | tail -n 1)
    # What ranks print through a mpirun that has been told to end is not seen any more.
    if [ -n "$newest" ] && { [ "${#redirect[@]}" = 0 ] || grep -q "stopped by SIG$signal" "$work/out"; } && state "$work/signal/ckpt/$newest" > /dev/null &&
        [ "$(tail -n 1 "$work/signal/log.jsonl" | sed -E 's/.*"step":([0-9]+).*/\1/')" = $((10#${newest#step-})) ] &&
        ! ls "$work/signal/ckpt" | grep -q tmp; then
        gone "$name: a valid checkpoint of that step, exit code $expected" "$expected"
    else
        tail -n 5 "$work/out" "$work/err"; not_ok "$name: a valid checkpoint of that step"
    fi
}
# Before the first step: as soon as the process knows what signals are for (their bits are in SigBlk).
rm -rf "$work/signal"
setsid mpirun -np 2 --allow-run-as-root --oversubscribe --mca mpi_yield_when_idle 1 "${to_files[@]}" "$train_gpt" "${long[@]}" --out "$work/signal" > /dev/null 2> "$work/mpirun.err" &
mpirun=$!
for _ in $(seq 1000); do
    mapfile -t rank < <(pgrep -P "$mpirun" -f -- "--out $work/signal")
    [ "${#rank[@]}" = 2 ] && [ $((0x$(awk '/^SigBlk/ { print $2 }' "/proc/${rank[0]}/status") & 0x4200)) = $((0x4200)) ] 2> /dev/null && break
    sleep 0.005
done
kill -TERM "${rank[0]}"
wait_gone
[ -e "$work/signal/ckpt/latest" ] && gone "SIGTERM before the first step: saved, exit code 7" 7 || { tail -n 3 "$work/err"; not_ok "SIGTERM before the first step: saved, exit code 7"; }
rounds=1
[ "${TEST_DEEP:-}" = 1 ] && rounds=10
for i in $(seq $rounds); do
    patience=1
    signal_case "SIGTERM to one rank" TERM 3 one 7
    signal_case "SIGINT to all ranks, saving behind the training" INT 3 all 7 --async-save --save-every 1
    signal_case "SIGUSR1 to mpirun" USR1 2 mpirun 7
    patience=5
    signal_case "SIGTERM to mpirun" TERM 4 mpirun '[1-9]*' --zero $((i % 4))
    redirect=()
    signal_case "SIGTERM to the mpirun that shows the output" TERM 2 mpirun '[1-9]*' --zero $((i % 4))
    redirect=("${to_files[@]}")
done

# ---- started again after a crash, with fewer ranks
restarter=${RUN_WITH_RESTART:-scripts/run_with_restart.sh}
cat > "$work/crash" << 'EOF'
# A rank that dies in every run of 3 ranks, as on a broken machine.
if [ "$OMPI_COMM_WORLD_SIZE" = 3 ] && [ "$OMPI_COMM_WORLD_RANK" = 2 ]; then
    "$@" & sleep 1.5; kill -KILL $!; wait; exit 9
fi
exec "$@"
EOF
expect "run_with_restart.sh shrinks and finishes" 0 "starting with 3 ranks" "starting with 2 ranks" -- \
    timeout "$limit" "$restarter" --ranks "3 2" --pause 0 --out "$work/elastic" -- \
    mpirun -np RANKS --allow-run-as-root --oversubscribe --mca mpi_yield_when_idle 1 bash "$work/crash" \
    "$train_gpt" "${short[@]}" --steps 250 --save-every 100 --out "$work/elastic"
[ "$(state "$work/elastic")" = "$final" ] && ok "with the same bits" || not_ok "with the same bits"
# Told to end, by the signal that would make mpirun kill the ranks after a second.
"$restarter" --ranks 2 --out "$work/told" -- mpirun -np RANKS --allow-run-as-root --oversubscribe \
    --mca mpi_yield_when_idle 1 "$train_gpt" "${long[@]}" --out "$work/told" > "$work/out" 2>&1 &
restart=$!
for _ in $(seq 200); do grep -q '^step' "$work/out" && break; sleep 0.05; done
kill -TERM $restart
# shellcheck disable=SC2046  # numbers
wait_at_most 30 $restart $(pgrep -P $restart)
[ $code = 7 ] && [ -e "$work/told/ckpt/latest" ] && ok "run_with_restart.sh told to end: the run saves and ends with 7" \
    || { echo "exit code $code"; tail -n 5 "$work/out"; not_ok "run_with_restart.sh told to end: the run saves and ends with 7"; }
expect "run_with_restart.sh gives up" 9 "giving up at the beginning" -- \
    timeout "$limit" "$restarter" --ranks "2 1" --pause 0 --tries 2 --out "$work/never" -- bash -c 'exit 9'
"$restarter" --ranks 2 --pause 60 --out "$work/never" -- bash -c 'exit 9' > "$work/out" 2>&1 &
restart=$!
for _ in $(seq 100); do grep -q 'exit code 9' "$work/out" && break; sleep 0.05; done
begin=$SECONDS
sleep 0.2; kill -TERM $restart
wait_at_most 30 $restart
[ $code = 9 ] && [ $((SECONDS - begin)) -le 10 ] && [ "$(grep -c starting "$work/out")" = 1 ] && ok "run_with_restart.sh told to end in its pause starts nothing more" \
    || { echo "exit code $code"; cat "$work/out"; not_ok "run_with_restart.sh told to end in its pause starts nothing more"; }
expect "run_with_restart.sh --help" 0 "fewer ranks" "non-finite numbers" -- "$restarter" --help
expect "run_with_restart.sh: an option without its value" 2 "--ranks without a value" "!unbound" -- "$restarter" --ranks
expect "run_with_restart.sh: ranks that are no numbers" 2 "--ranks 'all'" -- "$restarter" --ranks all --out x -- true
expect "run_with_restart.sh repeats no usage error" 2 "unknown option" "!giving up" -- \
    timeout "$limit" "$restarter" --ranks 2 --out "$work/never" -- "$train_gpt" --no-such-option
