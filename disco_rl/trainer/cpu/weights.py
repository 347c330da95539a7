"""The trainer's side of weight synchronisation: verl hands it the weights, it sends them on."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import ray
import torch
from torch.distributed.device_mesh import DeviceMesh
from verl.workers.config import HFModelConfig, RolloutConfig
from verl.workers.rollout.base import BaseRollout

from disco_rl.trainer.cpu.digest import weights_digest
from disco_rl.trainer.cpu.server import server_name


class WeightReceiver(BaseRollout):
    """Every trainer rank gathers every weight (a collective) and loads its own replica.

    A replica with a process of its own, `replica_rank`, gets them from a checkpoint engine.
    """

    def __init__(
        self,
        config: RolloutConfig,
        model_config: HFModelConfig,
        device_mesh: DeviceMesh | None,
        replica_rank: int | None = None,
    ) -> None:
        super().__init__(config, model_config, device_mesh)
        self.replica_rank = torch.distributed.get_rank() if replica_rank is None else replica_rank
        self.is_leader_rank = True
        self.last_digest: str | None = None
        self._server: Any = None

    async def resume(self, tags: list[str]) -> None:
        """Nothing to wake: the server's weights never left memory."""
        del tags

    async def release(self) -> None:
        """Free the server's key-value memory."""
        await self._find_server().sleep.remote()

    async def update_weights(
        self,
        weights: Generator[tuple[str, torch.Tensor], None, None],
        wire_format: str = "named_tensors",
        global_steps: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Drain `weights`, send them, and check that what arrived is what was sent.

        Raises RuntimeError when the digests differ, ValueError for LoRA or delta updates.
        """
        if wire_format != "named_tensors" or kwargs.get("peft_config") is not None:
            raise ValueError(
                "the CPU rollout takes whole weights only: set "
                "checkpoint_engine.backend=disco_cpu, and lora.merge=true with LoRA"
            )
        named = {name: tensor.detach() for name, tensor in weights}
        sent = weights_digest(named)
        loaded = await self._find_server().load.remote(named, global_steps)
        if loaded != sent:
            raise RuntimeError(
                f"rollout replica {self.replica_rank} holds weights {loaded}, the trainer sent "
                f"{sent} at step {global_steps}; check rollout.dtype and the model's dtype (fp32)"
            )
        self.last_digest = sent

    def _find_server(self) -> Any:
        if self._server is None:
            self._server = ray.get_actor(server_name(self.replica_rank))
        return self._server
