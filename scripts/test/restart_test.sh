#!/usr/bin/env bash
# scripts/run_with_restart.sh: what a relaunch starts from, whatever --resume its command has, and that it waits for
# the lock of the run before. (Ranks that die, and fewer of them: mpi_fault_test.sh.)
. scripts/test/tap.sh
. scripts/test/toy.sh
train_gpt=${TRAIN_GPT:-build/train_gpt}
export OMP_WAIT_POLICY=passive
toy_data
toy+=(--warmup-steps 0 --val-every 0 --save-every 1)

# A command that crashes behind what it is told to do at the first, and does as told from then on.
cat > "$work/crash" << 'END'
#!/usr/bin/env bash
marker=$1 first_steps=$2; shift 2
if [ -e "$marker" ]; then exec "$@"; fi
touch "$marker"
if [ "$first_steps" != 0 ]; then "$@" --steps "$first_steps"; fi
exit 9
END
chmod +x "$work/crash"
restarted() { # NAME OUT FIRST_STEPS OPTIONS...: runs to step 8 with one crash
    local name=$1 out=$2 first=$3; shift 3
    expect "$name" 0 "exit code 9" "step 8/8" -- scripts/run_with_restart.sh --ranks 1 --pause 0 --out "$out" -- \
        "$work/crash" "$out.once" "$first" "$train_gpt" "${toy[@]}" --steps 8 --out "$out" "$@"
}
aside() { find "$1/ckpt" -name '*.aside'; }

is "another run" "$train_gpt" "${toy[@]}" --steps 4 --out "$work/other"
is "an earlier run in --out" "$train_gpt" "${toy[@]}" --steps 6 --out "$work/never"
restarted "--resume never, and a crash" "$work/never" 3 --resume never
is "only what lay there before is aside" test "$(aside "$work/never" | wc -l)" = 3
is "the relaunch goes on at step 3" grep -q "resumed at step 3" "$work/.out"

restarted "--resume PATH, and a crash" "$work/path" 7 --resume "$work/other"
is "nothing is aside" test -z "$(aside "$work/path")"
is "the first start is from PATH, the relaunch goes on at step 7" \
    test "$(grep -oE 'resumed at step [0-9]' "$work/.out" | tr '\n' ' ')" = "resumed at step 4 resumed at step 7 "

# Before the run has saved anything of its own, what lies in --out is not what it would go on from.
is "an earlier run in --out" "$train_gpt" "${toy[@]}" --steps 2 --out "$work/early"
restarted "--resume=PATH, and a crash before the first step" "$work/early" 0 "--resume=$work/other"
is "the relaunch starts from PATH" grep -q "resumed at step 4" "$work/.out"

# ---- the run before still holds --out when it counts as dead: it is stopped, as a process in an endless read is
cat > "$work/stuck" << 'END'
#!/usr/bin/env bash
marker=$1; shift
if [ -e "$marker" ]; then exec "$@"; fi
"$@" --steps 1000000 --save-every 0 > /dev/null 2>&1 &
for _ in $(seq 200); do [ -s "$marker.out/log.jsonl" ] && break; sleep 0.05; done
kill -STOP $!
{ sleep 8; kill -KILL $!; } > /dev/null 2>&1 &
touch "$marker"
exit 9
END
chmod +x "$work/stuck"
expect "a second run in --out is refused at once" 2 "is in use by another run" "--lock-wait" -- bash -c '
    "$1" "$2" "${@:3}"; timeout 6 "${@:3}"' _ "$work/stuck" "$work/once" "$train_gpt" "${toy[@]}" --steps 5 --out "$work/once.out"
sleep 8
expect "a relaunch waits for the lock of the run before" 0 "is in use by another run" "waiting for it up to 120 s" "step 5/5" -- \
    scripts/run_with_restart.sh --ranks 1 --pause 0 --out "$work/held.out" -- \
    "$work/stuck" "$work/held" "$train_gpt" "${toy[@]}" --steps 5 --out "$work/held.out"
expect "or as long as the user says" 2 "is in use by another run" "up to 0.5 s" "!up to 120 s" -- \
    scripts/run_with_restart.sh --ranks 1 --pause 0 --out "$work/short.out" -- \
    "$work/stuck" "$work/short" "$train_gpt" "${toy[@]}" --steps 5 --out "$work/short.out" --lock-wait 0.5
