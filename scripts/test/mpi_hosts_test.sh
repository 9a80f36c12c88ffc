#!/usr/bin/env bash
# Ranks on two hosts, which have no memory in common and talk through the MPI library. Where no second
# machine is at hand, mpirun is told of two hosts and reaches each by a "remote shell" that stays here, in
# a namespace that has a host name of its own: MPI then sees two hosts. Needs the right to do so (root).
. scripts/test/tap.sh
export OMP_WAIT_POLICY=passive
train_gpt=${TRAIN_GPT:-build/train_gpt}
. scripts/test/mpi.sh
needs_mpi "two hosts"
if ! unshare --uts hostname east 2> /dev/null; then skip "two hosts" "no right to name a host (unshare --uts)"; exit; fi

cat > "$work/remote_shell" << 'EOS'
#!/bin/bash
while [[ $1 == -* ]]; do shift; done
export PRETENDED_HOST=$1; shift
exec unshare --uts bash -c "hostname $PRETENDED_HOST; $*"
EOS
chmod +x "$work/remote_shell"
hosts=(--host east:2,west:2 --mca plm_rsh_agent "$work/remote_shell" --mca plm_rsh_no_tree_spawn 1)

toy_ranks
toy+=(--steps 8 --val-every 4 --val-batches 2)
is "one rank" "$train_gpt" "${toy[@]}" --out "$work/one" --save-every 4
final=$(state "$work/one")
history "$work/one" > "$work/expected"

# ---- one curve
expect "selftest-comm over two hosts" 0 "values: right" -- launch 4 "${hosts[@]}" "$train_gpt" selftest-comm --max-mb 1
bad=""
for zero in 0 1 2 3; do
    out=$work/zero-$zero
    launch 4 "${hosts[@]}" "$train_gpt" "${toy[@]}" --zero $zero --save-every 4 --bucket-mb 0.007 --out "$out" > "$work/out" 2> "$work/err" \
        || { tail -n 5 "$work/err"; bad+=" $zero(exit)"; }
    [ "$(state "$out")" = "$final" ] || bad+=" $zero(state)"
    history "$out" | cmp -s - "$work/expected" || bad+=" $zero(log)"
done
[ -z "$bad" ] && ok "one curve on 2 hosts x 2 ranks, ZeRO 0 to 3" || { echo "differs:$bad"; not_ok "one curve on two hosts"; }
grep -q "ranks *4 on 2 hosts, 2 on east" "$work/out" && ok "the table says that there are two hosts" || { grep ranks "$work/out"; not_ok "the table says that there are two hosts"; }

# ---- saved behind the training: a second communicator of MPI, in a second thread
. scripts/test/saved_behind.sh
saved_behind "--async-save on two hosts" 4 5 "${hosts[@]}" -- "${toy[@]}" --val-every 0 --zero 2

# ---- failures: shared memory tells the ranks of a host, the launcher those of the other
west() { echo 'if [ $PRETENDED_HOST = west ]; then exec "$@" '"$1"'; fi; exec "$@"'; }
run=("$train_gpt" "${toy[@]}" --out "$work/no")
expect "a bad option on all ranks" 2 "unknown model" -- launch 4 "${hosts[@]}" "${run[@]}" --model gpt2:125M
[ "$(grep -c error: "$work/.err")" = 1 ] && ok "in one message" || { cat "$work/.err"; not_ok "in one message"; }
expect "other options on one host" 2 "--lr = 0.002" "--lr = 0.003" -- launch 4 "${hosts[@]}" bash -c "$(west "--lr 0.002")" _ "${run[@]}"
head -c 3001 "$work/d_train_000000.bin" > "$work/cut.bin"
start=$SECONDS
expect "a damaged file on one host" 3 "west] error" "cut.bin" -- launch 4 "${hosts[@]}" bash -c "$(west "--data $work/cut.bin")" _ "${run[@]}"
[ $((SECONDS - start)) -lt 10 ] && ok "within 10 s" || not_ok "within 10 s"
# In a command that does not hold signals back, on the last rank of all: its reason must be out before the others
# end it.
expect "a damaged file on the last rank" 3 "west] error" "cut.bin" -- launch 4 "${hosts[@]}" \
    bash -c 'if [ $OMPI_COMM_WORLD_RANK = 3 ]; then exec "$@" --data "$0"; fi; exec "$@"' "$work/cut.bin" \
    "$train_gpt" eval --model "$work/one" --data "$work/d_val_*.bin" --seq-len 31
[ ! -e "$work/no" ] && ok "nothing was written by what was refused" || not_ok "nothing was written by what was refused"

# ---- one host has a tenth of the other's time: its steps take longer than the limit, and that is no hang
cat > "$work/slow.sh" << 'EOS'
if [ $PRETENDED_HOST = west ]; then
    while kill -STOP $$ 2> /dev/null; do sleep 0.27; kill -CONT $$; sleep 0.03; done &
fi
exec "$@"
EOS
expect "no alarm for a slow host" 0 "step 2/2" "!no progress" -- \
    launch 2 --host east:1,west:1 --mca plm_rsh_agent "$work/remote_shell" --mca plm_rsh_no_tree_spawn 1 bash "$work/slow.sh" \
    "$train_gpt" "${toy[@]}" --steps 2 --warmup-steps 0 --val-every 0 --batch-tokens 124000 --save-every 0 --step-limit 2 --out "$work/slow"
slow=$(sed -nE 's/.*"ms":([0-9]+).*/\1/p' "$work/slow/log.jsonl" | sort -n | head -n 1)
[ "$slow" -gt 2500 ] && ok "which it was" || skip "which it was" "a step takes $slow ms here"

# ---- what happens to a rank while all train: mpirun ends the other host's.
long=("$train_gpt" "${toy[@]}" --steps 1000000 --val-every 0 --save-every 50)
disturb() {  # OUT SIGNAL OPTIONS...: sends it to a rank in the west; $code, $seconds
    local out=$1 signal=$2 mpirun start; shift 2
    : > "$work/out"
    launch 4 "${hosts[@]}" bash -c 'echo $$ > "$1/pid.$OMPI_COMM_WORLD_RANK"; exec "${@:2}"' _ "$work" \
        "${long[@]}" --out "$out" "$@" > "$work/out" 2> "$work/err" &
    mpirun=$!
    for _ in $(seq 200); do grep -q 'saved' "$work/out" && break; sleep 0.05; done
    start=$SECONDS
    kill "-$signal" "$(cat "$work/pid.3")"
    wait "$mpirun"
    code=$? seconds=$((SECONDS - start))
    pkill -KILL -F "$work/pid.3" 2> /dev/null
}
disturb "$work/killed" KILL
[ $code != 0 ] && [ $seconds -le 10 ] && state "$work/killed" > /dev/null && ok "a killed rank ends both hosts, a valid checkpoint stays" \
    || { echo "exit code $code after $seconds s"; tail -n 5 "$work/err"; not_ok "a killed rank ends both hosts"; }
disturb "$work/stopped" STOP --step-limit 3
[ $code != 0 ] && [ $seconds -le 15 ] && grep -q "no progress for .* in step .*last collective" "$work/err" && ok "a stopped rank: the watchdogs end both hosts" \
    || { echo "exit code $code after $seconds s"; tail -n 5 "$work/err"; not_ok "a stopped rank: the watchdogs end both hosts"; }
disturb "$work/signalled" TERM
[ $code = 7 ] && [ $seconds -le 10 ] && state "$work/signalled" > /dev/null && ok "SIGTERM to a rank of one host: all save and end with 7" \
    || { echo "exit code $code after $seconds s"; tail -n 5 "$work/out" "$work/err"; not_ok "SIGTERM to a rank of one host: all save and end with 7"; }
