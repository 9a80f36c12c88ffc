#!/usr/bin/env bash
# Starts a training run again when it crashes, from its newest valid checkpoint, with fewer ranks if
# need be.
#   scripts/run_with_restart.sh --ranks "8 4 2" --out OUT -- mpirun -np RANKS build/train_gpt ... --out OUT
# The word RANKS in the command is replaced by the first number of --ranks. A run that crashes twice
# without having saved a later step goes on with the next number (a broken node, a broken GPU), and
# after the last number the script gives up: an error that comes back at one step is no accident.
# The first start is the command as it is, with a --resume never or --resume PATH in it. Once that run has
# saved something, a relaunch goes on from there: --resume auto is put behind the command, and the last one
# counts. So is --lock-wait 120, if the command has none: a file server holds the lock of a machine that died
# for a while, mostly 90 s. A command that is a script must hand what is put behind it to train_gpt.
#   --tries N   crashes at one step before the next number of ranks       [2]
#   --pause S   seconds before a restart                                  [5]
# Ends with the run's own exit code: 0 done, 7 stopped by a signal, and 2, 3, 5 (usage, damaged files,
# non-finite numbers), which a restart would only repeat.
set -u
ranks="" out="" tries=2 pause=5
say() { echo "run_with_restart: $*" >&2; }
usage() { sed -n '2,16s/^# \{0,1\}//p' "$0"; }
refuse() { say "error: $*; --help says how to call this"; exit 2; }
while [ $# -gt 0 ]; do
    case $1 in
        --ranks | --out | --tries | --pause)
            [ $# -ge 2 ] && [ "$2" != -- ] || refuse "$1 without a value"
            printf -v "${1#--}" %s "$2"; shift 2 ;;
        --help | -h) usage; exit 0 ;;
        --) shift; break ;;
        *) refuse "unknown option '$1'; expected --ranks, --out, --tries, --pause, or -- and a command" ;;
    esac
done
[[ $ranks =~ ^\ *[1-9][0-9]*(\ +[1-9][0-9]*)*\ *$ ]] || refuse "--ranks '$ranks'; expected numbers, as in \"8 4 2\""
[ -n "$out" ] || refuse "no --out; expected the directory of the run"
[[ $tries =~ ^[1-9][0-9]*$ ]] || refuse "--tries '$tries'; expected 1 or more"
[[ $pause =~ ^[0-9]+(\.[0-9]+)?$ ]] || refuse "--pause '$pause'; expected seconds"
[ $# -gt 0 ] || refuse "no command behind --"
# The checkpoints in --out, a line each: the name, and which folder has it. A run that starts over sets older
# ones aside and may give their names to its own.
checkpoints() { find "$out/ckpt" -maxdepth 1 -name 'step-*' -printf '%f %i\n' 2> /dev/null | grep -E '^step-[0-9]+ ' | sort; }
newest() { checkpoints | tail -n 1 | cut -d ' ' -f 1; }

# A signal to this script reaches the run as SIGUSR1: it saves and ends with 7, and mpirun, which would
# kill the ranks a second after SIGTERM and end with 1, hands it on. The next one ends the run at once.
trap '[ $stopping = 0 ] && kill -USR1 $run 2> /dev/null || kill -TERM $run 2> /dev/null; stopping=1' TERM INT
stopping=0 failures=0 last=none run='' before=$(checkpoints) again=() wait_for_lock=(--lock-wait 120)
case " $* " in *" --lock-wait "* | *" --lock-wait="*) wait_for_lock=() ;; esac
read -r -a counts <<< "$ranks"
while [ ${#counts[@]} -gt 0 ]; do
    say "starting with ${counts[0]} ranks from ${last/none/the newest checkpoint, if any}"
    "${@/#RANKS/${counts[0]}}" "${again[@]}" &
    run=$!
    while wait $run; kill -0 $run 2> /dev/null; do :; done  # a signal ends a wait, not the run
    wait $run
    code=$?
    case $code in 0 | 2 | 3 | 5 | 7) exit $code ;; esac
    [ $stopping = 1 ] && exit $code
    step=$(newest)
    step=${step:-the beginning}
    if [ "$step" = "$last" ]; then failures=$((failures + 1)); else failures=1; fi
    last=$step
    again=("${wait_for_lock[@]}")
    if [ -n "$(comm -13 <(echo "$before") <(checkpoints))" ]; then again+=(--resume auto); fi
    say "exit code $code; newest checkpoint: $step"
    if [ $failures -ge "$tries" ]; then
        say "$failures crashes without a later checkpoint"
        counts=("${counts[@]:1}") failures=0
    fi
    [ ${#counts[@]} -gt 0 ] || break
    sleep "$pause" & run=$!
    wait $run
    [ $stopping = 1 ] && exit $code
done
say "giving up at $last"
exit "$code"
