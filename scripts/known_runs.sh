# shellcheck shell=bash
# What scripts/gpt2_*.sh and llama_*.sh share: where the data is, how ranks are started.
#   RANKS=8       processes in all                      [1; under Slurm: the job's tasks]
#   HOSTS=a:4,b:4 machines and ranks on each, for mpirun [this one]
#   DATA, VAL_DATA  token shards                         [data/fineweb_train_*.bin, data/fineweb_val_*.bin]
#   OUT           output directory, on a file system that all ranks see
#   TRAIN_GPT     the program                           [./train_gpt]
# Under Slurm (`sbatch scripts/gpt2.sbatch gpt2_124M`) srun starts the ranks, else mpirun, or nobody
# for one rank. A command that was stopped or crashed goes on when it is run again;
# scripts/run_with_restart.sh does that by itself, and with fewer ranks if it must.
set -eu
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# known_run MODEL OPTIONS... [--dry-run]
known_run() {
    local model=$1 options=() dry_run=0 word; shift
    for word in "$@"; do
        if [ "$word" = --dry-run ]; then dry_run=1; else options+=("$word"); fi
    done
    local train_gpt=${TRAIN_GPT:-./train_gpt} ranks=${RANKS:-${SLURM_NTASKS:-1}}
    if [ $dry_run = 1 ]; then exec "$train_gpt" plan --model "$model" "${options[@]}" --ranks "$ranks"; fi
    local run=("$train_gpt" --model "$model" "${options[@]}" --data "${DATA:-data/fineweb_train_*.bin}"
        --val-data "${VAL_DATA:-data/fineweb_val_*.bin}")
    if [ -n "${SLURM_JOB_ID:-}" ]; then exec srun --mpi=pmix "${run[@]}"; fi
    if [ "$ranks" = 1 ]; then exec "${run[@]}"; fi
    # 60 s between SIGTERM and SIGKILL: time to save when mpirun is told to end.
    local mpirun=(mpirun -np "$ranks" --mca odls_base_sigkill_timeout 60)
    if [ -n "${HOSTS:-}" ]; then mpirun+=(--host "$HOSTS"); fi
    if [ "$(id -u)" = 0 ]; then mpirun+=(--allow-run-as-root); fi
    # More ranks than cores: only for trying things out, and who waits must not spin.
    if [ -z "${HOSTS:-}" ] && [ "$ranks" -gt "$(nproc)" ]; then
        mpirun+=(--oversubscribe --mca mpi_yield_when_idle 1)
    fi
    exec "${mpirun[@]}" "${run[@]}"
}
