#!/usr/bin/env bash
# Faults in whole programs that the tests with ranks must see; scripts/test/mutate.sh says how to call
# this. A faulty file is linked before the library into a train_gpt, and the part of a script that a row
# names is run with it, up to what fails first; with the sound program before that. Half a minute each.
. scripts/test/mutate.sh
limit=${RANKS_LIMIT:-60}  # seconds for one run: what hangs is seen then
finding='^not ok [0-9]+ - .*'
bin=$work/bin  # laid out as a build folder is: scripts look for what lies beside the trainer
mkdir -p "$bin/fault"
read -r -a flags <<< "-std=c++20 -O1 -march=native -ffp-contract=off -fno-math-errno -fopenmp -I. $(sed -n 's/^PROBE_CPPFLAGS :=//p' "$build/probe.mk")"
read -r -a libs <<< "$(grep -m 1 -oe '-Wl,-rpath,[^ ]*' "$build/flags") $(sed -n 's/^PROBE_LDLIBS :=//p' "$build/probe.mk") -ldl"
mapfile -t wraps < <(sed -n 's/^WRAP.\(_Z[A-Za-z0-9_]*\).*/-Wl,--wrap=\1/p' dev/fault/kill.cpp)
mapfile -t runtime < <(printf '%s\n' dev/sim/src/*.cpp | sed "s|^|$build/sim/obj/|; s|cpp$|o|" | grep -vE '/(trace|race|count|hooks)\.o')

# FILE SCRIPT PART [SOURCE]: for a header the source that is compiled with it. The program is the one of
# the simulator where the script is nccl_test.sh.
mutant_build() {
    local source=${4:-$1} compile=(g++ "${flags[@]}") at=$build objects=("$work/mutant.o")
    if [[ $1 == *.sh ]]; then
        chmod +x "$tree/$1"
        cp "$build/train_gpt" "$bin/train_gpt"
        return
    fi
    if [ "$2" = nccl_test.sh ]; then
        at=$build/sim
        read -r -a compile < "$at/obj/$([[ $source == *.cu ]] && echo kernel || echo host)-flags"
    fi
    [ ! -e "$tree/$source" ] || source=$tree/$source
    "${compile[0]}" "-I$tree" "${compile[@]:1}" -x c++ -c "$source" -o "$work/mutant.o" || return
    [ "$1" = train_gpt.cu ] || objects+=("$at/obj/train_gpt.cu.o")
    [ "$at" = "$build" ] || objects+=("${runtime[@]}")
    g++ -fopenmp "${objects[@]}" "$at/libllmc.a" "${libs[@]}" -o "$bin/train_gpt" || return
    [ "$3" != "in each phase" ] ||
        g++ -fopenmp "${wraps[@]}" "${objects[@]}" "$build/fault/kill.o" "$build/libllmc.a" "${libs[@]}" -o "$bin/fault/train_gpt_killed"
}

# part_run PROGRAM SCRIPT PART: what comes before a script's first heading, and the parts whose headings
# hold these words; prints the rows that failed, and whether a run was out of time; succeeds if none failed.
part_run() {
    local restarter=$tree/scripts/run_with_restart.sh late
    [ -e "$restarter" ] || restarter=scripts/run_with_restart.sh
    awk -v words="$3" '/^# ---- / { other = !index($0, words) } !other; END { print "echo \"# the end\"" }' \
        "scripts/test/$2" > "$work/part.sh"
    env -u TEST_DEEP TAP_FAIL_FAST=1 RANKS_LIMIT="$limit" TRAIN_GPT="$1" CUDA_TRAIN_GPT="$1" RUN_WITH_RESTART="$restarter" \
        timeout $((5 * limit)) bash "$work/part.sh" < /dev/null > "$work/rows" 2>&1
    late=$(grep -m 1 -o 'out of time' "$work/rows")
    ! sed -n "s/^not ok [0-9]* - /&${late:+$late: }/p" "$work/rows" | grep .
}
mutant_run() { part_run "$bin/train_gpt" "$1" "$2"; }

# fault NAME FILE SED SCRIPT PART [SOURCE]: without it the part must pass, and with it fail.
declare -A sound
fault() {
    local sound_part="without a fault: $4, $5" program=$build/train_gpt
    [[ $1 == *"$only"* ]] || return
    if [ -n "$lines_only" ]; then mutate "$@"; return; fi
    if [ -z "${sound[$sound_part]:-}" ]; then
        rm -rf "$tree"
        [ "$4" != nccl_test.sh ] || program=$build/sim/train_gpt
        if part_run "$program" "$4" "$5" > "$work/log" && grep -q '^# the end' "$work/rows"; then
            ok "$sound_part"
            sound[$sound_part]=yes
        elif grep -q '^ok .*# SKIP' "$work/rows" && ! grep -q '^not ok' "$work/rows"; then
            skip "$sound_part" "$(grep -m 1 -o 'SKIP.*' "$work/rows")"
        else
            tail -n 5 "$work/rows" | sed 's/^/  /'
            not_ok "$sound_part"
        fi
    fi
    [ "${sound[$sound_part]:=no}" != yes ] || mutate "$@"
}

alike=llmc/train/alike.cpp batch=llmc/train/batch.cpp commands=llmc/train/commands.cpp evaluate=llmc/train/evaluate.cpp
options=llmc/train/options.cpp run=llmc/train/run.cpp saver=llmc/train/saver.cpp saves=llmc/train/saves.cpp
signals=llmc/train/signals.cpp trace=llmc/train/trace.cpp shards=llmc/parallel/shards.cpp mpi=llmc/parallel/comm_mpi.cpp
watchdog=llmc/parallel/watchdog.cpp world=llmc/parallel/world.cpp load=llmc/io/checkpoint_load.cpp save=llmc/io/checkpoint_save.cpp
# All but its own slice comes out of the wire's format.
own_sum='s/wire_unpack\(all, wire_, size_t\(bucket\.n\), (.*)\);/wire_unpack(all, wire_, begin, \1), wire_unpack(all + begin + n, wire_ + begin + n, size_t(bucket.n) - begin - n, \1);/'

# ---- the bits: who computes what, what is sent, what is saved
fault "MPI: an all-to-all sends its first piece" $mpi 's/\(s\.begin\(rank_\) \+ first\) \* width/s.begin(rank_) * width/' mpi_test.sh "right collectives"
fault "many processes, each alone in its MPI"    $mpi 's/s->size >= launched, Exit/s->size >= 1, Exit/' mpi_test.sh "right collectives"
fault "all ranks read the first one's samples"   $batch 's/order\.sample\(first \+ i\)/order.sample(first + i - begin * B)/' mpi_test.sh "any layout: the same"
fault "an uneven step loses its rest"            $batch 's/\* \(rank \+ 1\) \/ ranks/* rank \/ ranks + micro_batches \/ ranks/' mpi_test.sh "any layout: the same"
fault "an empty micro-batch has targets"         $batch 's/size\(\), kIgnoreTarget\)/size(), 0)/' mpi_test.sh "any layout: the same"
fault "a rank counts its own targets"            $run 's/world\.dp->all_reduce\(&valid.*//' mpi_test.sh "any layout: the same"
fault "all ranks write the log"                  $run 's/setup\.speaks = .*/setup.speaks = true;/' mpi_test.sh "any layout: the same"
fault "a load reads the first rank's file"       $load 's/(for \(const ManifestPiece& s : t\.pieces\) \{)$/\1 if (s.file != 0) continue;/' mpi_test.sh "any layout"
fault "a rank loads only what it owns"           $run 's/Groups::All, Pieces::Held/Groups::All, Pieces::Owned/' mpi_test.sh "the ends of epochs"
fault "a resumed run begins its data anew"       $run 's/^( +state = checkpoint_state\(.*)$/\1 state.samples = 0;/' mpi_test.sh "the ends of epochs"
fault "the moments are not loaded"               $run 's/state_pieces\(shards, Groups::All, Pieces::Held\), \*world\.dp\);/state_pieces(shards, Groups::Weights, Pieces::Held), *world.dp, Want::Some);/' mpi_fault_test.sh "killed, at any time"
fault "16 bits: stage 1 keeps an exact sum"      $shards 's/wire_unpack\(mine, wire_ \+ begin.*//' mpi_test.sh "16 bits"
fault "16 bits: stage 0 keeps its exact sum"     $shards "$own_sum" mpi_test.sh "16 bits"
fault "16 bits: each rank scales by its own"     $shards 's/dp_\.all_reduce\(static_cast<void\*>\(most_\).*//' mpi_test.sh "16 bits"
fault "16 bits: the wire has 32"                 $run 's/config\.wire = opt\.wire;//' mpi_test.sh "16 bits"
fault "16 bits: in canonical mode too"           $options 's/opt\.wire == Wire::Fp32 \|\|/true ||/' mpi_test.sh "16 bits"
fault "a plan for one rank"                      llmc/train/planner.cpp 's/comm_absent\(opt\.ranks\)/comm_absent(1)/' mpi_test.sh "what is said of a layout"
fault "the log does not know communication"      $run 's/if \(run\.opt\.ranks > 1\)/if (run.opt.ranks > 99)/' mpi_test.sh "what is said of a layout"
fault "validation: a batch counts twice"         $evaluate 's/first \+= int64_t\(B\) \* comm\.size\(\)\)/first += int64_t(B))/' mpi_test.sh "validation is dealt out"
fault "validation: batches behind the last"      $evaluate 's/mine \+ b < n/mine + b < all/' mpi_test.sh "validation is dealt out"
fault "validation: a loss stays on its rank"     $evaluate 's/fixed_sum_all_reduce\(&loss, comm\);//' mpi_test.sh "validation is dealt out"
fault "eval: the other ranks read one sample"    $commands 's/: evaluate\(gpt, \*model\.shards, data, 0,/: evaluate(gpt, *model.shards, data, 1,/' mpi_test.sh "validation is dealt out"
fault "two hosts: gathered in place only"        $mpi 's/if \(place != mine\) std::memmove.*//' mpi_hosts_test.sh "one curve"
fault "two hosts: the table says one"            $world 's/one_host \? str\(" on "/true ? str(" on "/' mpi_hosts_test.sh "one curve"

# ---- saved behind the training
fault "behind: no copy is made"                  $saver 's/if \(!snapshot_\) return pieces;/return pieces;/' mpi_test.sh "saved behind"
fault "behind: training waits for it"            $saver 's/waited_ = comm_clock\(\) - begin;/waited_ = comm_clock() - begin, finish(log);/' mpi_test.sh "saved behind"
fault "behind: what failed counts as saved"      $saver 's/if \(saved\.ok\) \{/if (true) {/' mpi_test.sh "saved behind"
fault "behind: why it failed stays on its rank"  llmc/io/checkpoint_agree.cpp 's/if \(!all\[r\]\.empty\(\)\) \{/if (int(r) == comm.rank() \&\& !all[r].empty()) {/' mpi_test.sh "saved behind"
fault "behind: over the run's communicator"      $saver 's/behind_\(\*world\.background\)/behind_(*world.dp)/' mpi_hosts_test.sh "saved behind"

# ---- the timeline
fault "trace: the first rank's part alone"       $trace 's/missing \+= !part_receive\(file, r, comm_\)/{ std::ofstream nowhere; missing += !part_receive(nowhere, r, comm_); }/' mpi_test.sh "one timeline"
fault "trace: no bytes"                          $trace 's/if \(s\.bytes >= 0\) event\["args"\].*//' mpi_test.sh "one timeline"
fault "trace: no purposes"                       $trace 's/\*s\.what \? .* : str\(s\.name\)/str(s.name)/' mpi_test.sh "one timeline"
fault "trace: one row for both threads"          llmc/parallel/comm_queue.cpp 's/timeline_thread\(Row::Communication\);//' mpi_test.sh "one timeline"
fault "trace: nobody looks whether it can be"    $trace 's/if \(error\) throw \*error;//' mpi_commands_test.sh "--trace"
fault "trace: none of a run that ends badly"     $trace 's/if \(!path_\.empty\(\)\) part_write\(path_, comm_\.rank\(\)\);//' mpi_commands_test.sh "--trace"
fault "trace: all ranks write to one file"       $trace 's/rank \? str\(path, "\.", rank\) : path/path/' mpi_commands_test.sh "--trace"

# ---- what is refused, and how
fault "more ranks than micro-batches"            $options 's/micro_batches >= ranks, Exit/micro_batches >= 1, Exit/' mpi_test.sh "what is refused"
fault "every rank says what is wrong"            $world 's/\(alone \|\| !lower_rank_says\(world, message\)\)/true/' mpi_test.sh "what is refused"
fault "ranks fail with code 1"                   $world 's/code = failure_of\(world\.status->failure\)\.code;/code = 1;/' mpi_test.sh "what is refused"
fault "more ranks than samples"                  $run 's/>= world\.size, Exit/>= 1, Exit/' mpi_test.sh "what only one rank knows"
fault "another --out on another rank"            llmc/io/run_lock.cpp 's/error = agree\(comm, \[&\] \{ check_seen\(out, found, owner\); \}\);/{}/' mpi_test.sh "what only one rank knows"
fault "nobody is told that a rank has failed"    $world 's/failure_tell\(\*world\.status, code, world\.rank\);//; s/code = failure_of\(world\.status->failure\)\.code;//' mpi_test.sh "what only one rank knows"
fault "--out is made before all is looked at"    $run 's/^ +run\.opt = opt;$/& ::mkdir(opt.out.c_str(), 0777);/' mpi_test.sh "what only one rank knows"
fault "alike: any options"                       $alike 's/if \(row\.belongs_to\(opt\.command\) && .*\)$/if (false)/' mpi_test.sh "something else"
fault "alike: any program"                       $alike 's/file_digest\("\/proc\/self\/exe"\)/""/' mpi_test.sh "something else"
fault "alike: any command"                       $alike 's/"\\ncommand = ", command_name\(opt\.command\)/""/' mpi_test.sh "something else"
fault "alike: the first rank's command decides"  $alike '/^void check_started_alike/,/^}/s/if \(world\.size == 1\) return;/if (world.size == 1 || opt.command != Command::Train) return;/' mpi_test.sh "something else"
fault "alike: the same number of threads"        $alike 's/ && row\.name != "threads"//' mpi_test.sh "something else"
fault "alike: any config.json"                   $run 's/mine \+= str\("\\nthe model.*/(void)field;/' mpi_test.sh "something else"
fault "alike: any data"                          $alike 's/lines \+= str\("\\n", s\.path\(\).*/(void)s;/' mpi_test.sh "something else"
fault "alike: data of the same name and size"    $alike 's/counted\(s\.tokens\(\), "token"\), ", ", s\.fingerprint\(\)\)/counted(s.tokens(), "token"))/' mpi_test.sh "something else"
fault "alike: any tokenizer"                     $run 's/if \(run\.tokenizer\) \{/if (false) {/' mpi_test.sh "something else"
fault "alike: any weights, in eval"              $saves 's/check_alike\(alike_line\(path, file\), world\);//' mpi_test.sh "something else"
fault "alike: any weights, in a run"             $run 's/if \(model\.file\) mine \+= .*//' mpi_test.sh "something else"
fault "alike: any questions"                     llmc/train/eval_task.cpp 's/check_alike\(question_lines.*//' mpi_test.sh "something else"
fault "two hosts: both say what is wrong"        $world 's/if \(!world\.mpi->first_host\) .*//' mpi_hosts_test.sh "failures"

# ---- commands
fault "every rank prints"                        $world 's/if \(world\.rank > 0 && !std::freopen.*//' mpi_commands_test.sh "every command"
fault "commands: the first rank's verdict is its" $commands 's/if \(const auto error = agree_on_root\(\*world\.dp, work\)\) throw \*error;/if (world.rank == 0) work();/' mpi_commands_test.sh "every command"
fault "commands: all ranks write"                $commands 's/agree_on_root\(\*world\.dp, work\)/agree(*world.dp, work)/' mpi_commands_test.sh "every command"
fault "import: all ranks take one's tensors"     $saves 's/!= comm\.rank\(\)\) continue;/!= 0) continue;/' mpi_commands_test.sh "every command"
fault "a launcher's output is a terminal"        llmc/train/progress.cpp 's/ && !launched//' mpi_commands_test.sh "colours"

# ---- hangs
fault "watchdog: none for commands"              $commands 's/if \(train \|\| world\.size > 1\)/if (train)/' mpi_commands_test.sh "hangs"
fault "watchdog: a sampled token is no progress" llmc/model/decode.cpp 's/liveness_mark\(\);//' mpi_commands_test.sh "hangs"
fault "watchdog: no last words"                  $watchdog 's/^    say_last_words\(\);//' mpi_commands_test.sh "hangs"
fault "watchdog: sees no hang"                   $watchdog 's/if \(idle > limits_.*//' mpi_fault_test.sh "a rank is stopped"
fault "watchdog: all hearts beat"                $watchdog 's/const double silent = .*/const double silent = 0;/' mpi_fault_test.sh "a rank is stopped"
fault "watchdog: who computes does not follow"   $watchdog 's/if \(now - failed_since_ < kFollow \|\| ending_\) return;/return;/' mpi_fault_test.sh "a rank computes on"
fault "watchdog: the dead are not seen"          $watchdog 's/if \(!world_\.status \|\| world_\.status->failure\) return;/return;/' nccl_test.sh "a rank that dies"
fault "watchdog: a slow step is a hang"          llmc/parallel/liveness.cpp 's/^    of_run = comm_clock\(\);//' mpi_fault_test.sh "no alarm"
fault "watchdog: a pause is a hang"              $watchdog 's/if \(now - before > kStopped\) liveness_mark\(\);//' mpi_fault_test.sh "no alarm"
fault "watchdog: sees no hang on two hosts"      $watchdog 's/if \(idle > limits_.*//' mpi_hosts_test.sh "while all train"
fault "nobody waits for a rank that never comes" $world 's/\[this, limit\] \{ run\(limit\); \}/[] {}/' mpi_fault_test.sh "a rank is stopped"

# ---- a rank is killed, signals
fault "killed: what was begun stays"             $save 's/if \(!is_unfinished\(name\)\) continue;/continue;/' mpi_fault_test.sh "in each phase"
fault "killed: half a save has its final name"   $save 's/s\.path \+ id\)/s.path)/' mpi_fault_test.sh "in each phase"
fault "signals: a rank keeps its own"            $run 's/world\.dp->all_reduce\(&signal.*//' mpi_fault_test.sh "signals"
fault "signals: nothing is saved"                train_gpt.cu 's/if \(signal \|\| last \|\| \(state/if (last || (state/' mpi_fault_test.sh "signals"
fault "signals: the code of a run that is done"  train_gpt.cu 's/Exit::Signalled/Exit::Done/' mpi_fault_test.sh "signals"
fault "signals: SIGUSR1 kills"                   $signals 's/SIGTERM, SIGINT, SIGUSR1/SIGTERM, SIGINT/' mpi_fault_test.sh "signals"
fault "signals: a rank waits for its reader"     $signals 's/^    if \(!launched\) return;/    return;/' mpi_fault_test.sh "signals"

# ---- run_with_restart.sh
restart=scripts/run_with_restart.sh
fault "restart: never with fewer ranks"          $restart 's/counts=\("\$\{counts\[@\]:1\}"\) failures=0/failures=0/' mpi_fault_test.sh "started again"
fault "restart: after a usage error"             $restart 's/0 \| 2 \| 3/0 | 3/' mpi_fault_test.sh "started again"
fault "restart: the run gets SIGTERM"            $restart 's/kill -USR1 \$run/kill -TERM $run/' mpi_fault_test.sh "started again"
fault "restart: the run gets no signal"          $restart "s/^trap '.*; stopping=1'/trap 'stopping=1'/" mpi_fault_test.sh "started again"
fault "restart: once more after the pause"       $restart 's/\[ \$stopping = 1 \] && exit \$code//' mpi_fault_test.sh "started again"

# ---- ranks on GPUs
nccl=llmc/parallel/comm_nccl.cu queue=llmc/parallel/comm_queue.cu
fault "GPUs: two ranks on one"                   $nccl 's/check_one_gpu_each\(host\);//' nccl_test.sh "who is on which GPU"
fault "GPUs: one slice is gathered from all"     $nccl 's/ncclAllGather\(mine, all,/ncclAllGather(all, all,/' nccl_test.sh "who is on which GPU"
fault "GPUs: nobody waits for what comes"        $queue 's/wait_for\(compute_, work_.*//' nccl_test.sh "one curve"
fault "GPUs: sent before it is computed"         $queue 's/^ +wait_for\(communication_, now\);//' nccl_test.sh "one curve"
fault "GPUs: the trace has the host's times"     llmc/parallel/timeline.cu 's/time = origin\.time \+ .*/time = comm_clock();/' nccl_test.sh "the timeline"
fault "GPUs: a copy follows the training"        $saver 's/^(void Saver<Elem, Stream>::look\(Log& log\) \{)$/\1 shards_.state_to_host();/' nccl_test.sh "saved behind"
fault "GPUs: stage 0 keeps its exact sum"        $shards "$own_sum" nccl_test.sh "16 bits"
fault "GPUs: a plan for one rank"                llmc/train/planner.cpp 's/comm_absent\(opt\.ranks\)/comm_absent(1)/' nccl_test.sh "memory as planned"
