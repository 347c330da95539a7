"""verl's handle of one rollout server."""

from __future__ import annotations

from typing import Any

from verl.utils.fs import copy_to_local
from verl.workers.rollout.replica import RolloutReplica

from disco_rl.trainer.cpu.server import server_name
from disco_rl.trainer.cpu.startup import start_server


class CpuReplica(RolloutReplica):
    """One server a trainer process: no parallelism inside a replica."""

    def __init__(
        self, replica_rank: int, config: Any, model_config: Any, *args: Any, **kwargs: Any
    ) -> None:
        super().__init__(replica_rank, config, model_config, *args, **kwargs)
        if self.world_size != 1:
            raise ValueError(
                f"rollout.name=disco_cpu with {self.world_size} processes a replica; set "
                "actor_rollout_ref.rollout.{tensor_model_parallel_size,data_parallel_size,"
                "pipeline_model_parallel_size} to 1"
            )
        if self.is_reward_model or self.is_teacher_model:
            raise ValueError("rollout.name=disco_cpu serves the actor only, no reward or teacher")

    async def launch_servers(self) -> None:
        """Start the server, or find the one started early, and wait until its model is loaded."""
        config = self.config
        server = start_server(
            self.replica_rank,
            copy_to_local(self.model_config.path),
            window=config.max_model_len or config.prompt_length + config.response_length,
            max_rows=config.max_num_seqs,
            seed=config.seed,
            concurrency=self.max_concurrency,
        )
        await server.ready.remote()
        self.servers = [server]
        self._server_handle = server
        self._server_address = server_name(self.replica_rank)
