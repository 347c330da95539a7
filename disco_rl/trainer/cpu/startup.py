"""Starts rollout servers, early where possible.

verl starts its processes one after the other, and each imports for 5 to 10 seconds. A server
that starts while the trainer is imported costs no wall time.
"""

from __future__ import annotations

import os
from typing import Any

import ray
from omegaconf import DictConfig

from disco_rl.trainer.cpu.server import RolloutServer, server_name


def start_server(
    replica_rank: int, path: str, *, window: int, max_rows: int, seed: int, concurrency: int
) -> Any:
    """Handle of the replica's rollout server, which is started unless it runs already."""
    return (
        ray.remote(RolloutServer)
        .options(name=server_name(replica_rank), get_if_exists=True, max_concurrency=concurrency)
        .remote(
            path,
            window=window,
            max_rows=max_rows,
            seed=seed + replica_rank,
            threads=int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1)),
        )
    )


def start_servers(config: DictConfig) -> list[Any]:
    """The rollout servers that verl's replicas of this config will ask for: one a training
    process, unless these hold no rollout, and one a process that only samples.

    Keep the handles until the replicas have theirs: an actor nobody holds is stopped by Ray.
    """
    rollout = config.actor_rollout_ref.rollout
    return [
        start_server(
            rank,
            config.actor_rollout_ref.model.path,
            window=rollout.max_model_len or rollout.prompt_length + rollout.response_length,
            max_rows=rollout.max_num_seqs,
            seed=rollout.seed,
            concurrency=max(1000, rollout.max_num_seqs),
        )
        for rank in range(replica_count(config))
    ]


def replica_count(config: DictConfig) -> int:
    """verl numbers those of training processes first."""
    role, trainer = config.actor_rollout_ref, config.trainer
    trains = trainer.n_gpus_per_node * trainer.nnodes if role.hybrid_engine else 0
    return int(trains + samples_only(config))


def logical_gpus(config: DictConfig) -> int:
    """What Ray has to count: every process that trains or only samples claims one."""
    return int(config.trainer.n_gpus_per_node * config.trainer.nnodes + samples_only(config))


def samples_only(config: DictConfig) -> int:
    """Processes that only sample; verl reads the two keys in this mode alone."""
    rollout = config.actor_rollout_ref.rollout
    return int(rollout.nnodes * rollout.n_gpus_per_node) if rollout.nnodes else 0
