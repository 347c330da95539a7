#!/usr/bin/env bash
# One training run on Slurm: Ray over all nodes, Workers and judge on their own or behind addresses.
#
#   sbatch --nodes=2 scripts/launch/slurm.sh experiment=qwen3_14b \
#       'worker.url=[http://w1:8101/v1,http://w2:8101/v1]' judge.url=http://j1:8100/v1
#
# Preempted, Slurm puts it back into the queue; out of time, this script does so itself, five minutes
# before the end. The same command goes on from the last checkpoint. Keys (WANDB_API_KEY, or what worker.api_key_env and judge.api_key_env name) are
# taken from the environment of sbatch; they stand in no file and in no argument.
#SBATCH --job-name=disco-rl
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=96
#SBATCH --mem=0
#SBATCH --time=2-00:00:00
#SBATCH --requeue
#SBATCH --signal=B:USR1@300
#SBATCH --open-mode=append
#SBATCH --output=slurm-%j.log
set -euo pipefail

: "${VENV:=$PWD/.venv}" # of `make gpu`, at the same path on every node
: "${RAY_PORT:=6379}"
export PATH="$VENV/bin:$PATH" RAY_USAGE_STATS_ENABLED=0
# srun doesn't take it over by itself, and Ray would count one core a node.
export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"

nodes=($(scontrol show hostnames "$SLURM_JOB_NODELIST"))
head=${nodes[0]}
address=$(srun --nodes=1 --ntasks=1 --nodelist="$head" hostname --ip-address | awk '{print $1}')

srun --overlap --nodes=1 --ntasks=1 --nodelist="$head" \
    ray start --head --node-ip-address="$address" --port="$RAY_PORT" --block &
for node in "${nodes[@]:1}"; do
    srun --overlap --nodes=1 --ntasks=1 --nodelist="$node" \
        ray start --address="$address:$RAY_PORT" --block &
done

# Until every node has joined; a node that doesn't is an error, not a smaller run.
srun --overlap --nodes=1 --ntasks=1 --nodelist="$head" python - "${#nodes[@]}" <<'PYTHON'
import sys, time, ray
wanted, until = int(sys.argv[1]), time.monotonic() + 300
ray.init(address="auto", log_to_driver=False)
while (joined := sum(node["Alive"] for node in ray.nodes())) < wanted:
    if time.monotonic() > until:
        sys.exit(f"{joined} of {wanted} nodes joined Ray in 300 s")
    time.sleep(2)
PYTHON

# Slurm's own requeueing doesn't cover the time limit. Bash runs a trap only while it waits.
trap 'scontrol requeue "$SLURM_JOB_ID"; sleep 60' USR1
srun --overlap --nodes=1 --ntasks=1 --nodelist="$head" \
    disco-rl train trainer.nnodes="${#nodes[@]}" trainer.n_gpus_per_node=8 \
    +ray_kwargs.ray_init.address=auto "$@" &
wait $!
