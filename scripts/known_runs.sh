# shellcheck shell=bash
# What scripts/gpt2_*.sh and llama_*.sh share: where the data is, what fits the machine, how ranks are started.
#   RANKS=8       processes in all                      [the slots of HOSTS, or 1; under Slurm: the job's tasks]
#   HOSTS=a:4,b:4 machines and slots for ranks on each (1 without a number), for mpirun [this one]
#   DATA, VAL_DATA  token shards                         [each script's own]
#   OUT           output directory, on a file system that all ranks see
#   TRAIN_GPT     the program                           [./train_gpt]
#   GPU_MIB       memory of one GPU in MiB; 0: the CPU  [what nvidia-smi says, if TRAIN_GPT has CUDA]
# With a GPU the run is in bf16 (fp32 before compute capability 8.0) and takes the largest micro-batch whose
# plan fits: `train_gpt plan` is asked, 64, 32, ... 1. Without one it is fp32, a sequence at a time. A choice
# belongs to its run, as the seed does: it is kept beside its folder, in OUT.choice. --micro-batch or --dtype overrules.
# Under Slurm (`sbatch scripts/gpt2.sbatch gpt2_124M`) srun starts the ranks, else mpirun, or nobody
# for one rank. A command that was stopped or crashed goes on when it is run again;
# scripts/run_with_restart.sh does that by itself, and with fewer ranks if it must.
set -eu
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# This machine's smallest GPU and how many there are: "MIB CAPABILITY COUNT", or nothing.
gpu_found() {
    if [ -n "${GPU_MIB:-}" ]; then
        [ "$GPU_MIB" = 0 ] || echo "$GPU_MIB 80 0"
    elif "$1" --version 2> /dev/null | grep -q '^CUDA *yes' && command -v nvidia-smi > /dev/null; then
        { nvidia-smi --query-gpu=memory.total,compute_cap --format=csv,noheader,nounits 2> /dev/null || true; } |
            tr -d ',.' | sort -n | awk 'NR == 1 { first = $1 " " $2 } END { if (NR) print first, NR }'
    fi
}

# given --NAME WORDS...: is the option among the words?
given() {
    local name=$1; shift
    case " $* " in *" $name "* | *" $name="*) return 0 ;; *) return 1 ;; esac
}

# fitting TRAIN_GPT RANKS PLAN_OPTIONS...: sets `numbers`, the options that suit the machine.
fitting() {
    local train_gpt=$1 ranks=$2 mib capability count room b bytes=0; shift 2
    numbers=(--micro-batch 1)
    read -r mib capability count <<< "$(gpu_found "$train_gpt")"
    [ -n "$mib" ] || return 0
    local type=bf16
    if [ "$capability" -lt 80 ]; then type=fp32; fi
    # Ranks of one machine that outnumber its GPUs share them. A tenth is left for what is not ours: the
    # driver's context, the libraries' own buffers.
    if [ "$count" -gt 0 ] && [ -z "${HOSTS:-}${SLURM_JOB_ID:-}" ] && [ "$ranks" -gt "$count" ]; then
        mib=$((mib / ((ranks + count - 1) / count)))
    fi
    room=$((mib * 1024 * 1024 * 9 / 10))
    for b in 64 32 16 8 4 2 1; do
        numbers=(--device cuda --dtype "$type" --micro-batch "$b")
        if given --micro-batch "$@"; then return 0; fi
        # A micro-batch that does not divide the step, or leaves a rank without one, has no plan. One that the
        # ranks divide badly is none to take.
        bytes=$("$train_gpt" plan "${numbers[@]}" "$@" --ranks "$ranks" 2> /dev/null | awk -v b="$b" '
            / % of the work is padding/ && b > 1 && $(NF - 6) > 10 { exit }
            $1 == "total" && $2 == "memory" { gsub(",", "", $3); print $3 }') || true
        if [ -n "$bytes" ] && [ "$bytes" -le "$room" ]; then return 0; fi
    done
    if [ -n "$bytes" ]; then
        echo "a GPU of $mib MiB: the plan of one sequence takes $((bytes >> 20)) MiB, and a tenth is kept free;" \
            "hint: more RANKS, or --zero 3 --recompute block" >&2
        exit 4
    fi
}

refuse() { echo "error: $*" >&2; exit 2; }

# slots HOSTS: how many ranks they hold.
slots() {
    local host sum=0
    [[ $1 =~ ^[^:,]+(:[1-9][0-9]*)?(,[^:,]+(:[1-9][0-9]*)?)*$ ]] || refuse "HOSTS='$1'; expected as in a:4,b:4"
    for host in ${1//,/ }; do
        case $host in *:*) sum=$((sum + ${host#*:})) ;; *) sum=$((sum + 1)) ;; esac
    done
    echo $sum
}

# ranks_in_all: sets `ranks` and `places`, the ranks that there is room for (0: nobody says).
ranks_in_all() {
    places=0
    if [ -n "${SLURM_JOB_ID:-}" ]; then
        # Older ones do not count the tasks of a job that was asked for by --ntasks-per-node.
        places=${SLURM_NTASKS:-$((${SLURM_NNODES:-1} * ${SLURM_NTASKS_PER_NODE:-1}))}
    elif [ -n "${HOSTS:-}" ]; then
        places=$(slots "$HOSTS")
    fi
    ranks=${RANKS:-$((places > 0 ? places : 1))}
    [[ $ranks =~ ^[1-9][0-9]*$ ]] || refuse "RANKS='$ranks'; expected a number, 1 or more"
}

check_places() {
    if [ -n "${SLURM_JOB_ID:-}" ]; then
        [ "$ranks" = "$places" ] ||
            refuse "RANKS=$ranks, but this job has SLURM_NTASKS=$places tasks; expected no RANKS, or as many"
    elif [ "$places" -gt 0 ]; then
        [ "$ranks" -le "$places" ] ||
            refuse "RANKS=$ranks, but HOSTS=$HOSTS has $places slots; expected at most as many ranks"
    fi
}

# known_run MODEL OPTIONS... [--dry-run]
known_run() {
    local model=$1 options=() dry_run=0 word previous='' out=out threads=${OMP_NUM_THREADS:-} numbers=() ranks places
    shift
    for word in "$@"; do
        if [ "$word" = --dry-run ]; then dry_run=1; else options+=("$word"); fi
        if [ "$previous" = --out ]; then out=$word; fi
        if [ "${word#--out=}" != "$word" ]; then out=${word#--out=}; fi
        if [ "$previous" = --threads ]; then threads=$word; fi
        previous=$word
    done
    local train_gpt=${TRAIN_GPT:-./train_gpt}
    ranks_in_all
    if [ $dry_run = 0 ]; then check_places; fi
    local choice=${out%/}.choice
    if [ -f "$choice" ]; then
        read -r -a numbers < "$choice"
    else
        fitting "$train_gpt" "$ranks" --model "$model" "${options[@]}"
    fi
    # What the user chose comes later, and the last one counts.
    options=("${numbers[@]}" "${options[@]}")
    if [ $dry_run = 1 ]; then exec "$train_gpt" plan --model "$model" "${options[@]}" --ranks "$ranks"; fi
    mkdir -p "$(dirname "$choice")"
    echo "${numbers[*]}" > "$choice"
    local run=("$train_gpt" --model "$model" "${options[@]}" --data "$DATA" --val-data "$VAL_DATA")
    if [ -n "${SLURM_JOB_ID:-}" ]; then
        # Since 22.05 a step does not inherit the cores that its job was given for each task.
        if [ -n "${SLURM_CPUS_PER_TASK:-}" ]; then export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK; fi
        # A minute after one task has ended all do: ranks wait for one that died, and those that end together,
        # each with the code of the run, do so within moments. --kill-on-bad-exit would cut these off, and the job
        # would end with the code of who was killed.
        exec srun --mpi=pmix --wait=60 "${run[@]}"
    fi
    if [ "$ranks" = 1 ] && [ -z "${HOSTS:-}" ]; then exec "${run[@]}"; fi
    # 60 s between SIGTERM and SIGKILL: time to save when mpirun is told to end.
    local mpirun=(mpirun -np "$ranks" --mca odls_base_sigkill_timeout 60)
    if [ -n "${HOSTS:-}" ]; then mpirun+=(--host "$HOSTS"); fi
    # Left to itself, mpirun binds each of two ranks to one core; the program divides a machine's cores itself.
    if [ "$threads" != 1 ]; then mpirun+=(--bind-to none); fi
    if [ "$(id -u)" = 0 ]; then mpirun+=(--allow-run-as-root); fi
    # More ranks than cores: only for trying things out, and who waits must not spin.
    if [ -z "${HOSTS:-}" ] && [ "$ranks" -gt "$(nproc)" ]; then
        mpirun+=(--oversubscribe --mca mpi_yield_when_idle 1)
    fi
    exec "${mpirun[@]}" "${run[@]}"
}
