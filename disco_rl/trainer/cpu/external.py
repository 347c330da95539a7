"""Registers the CPU engine and the CPU rollout with verl.

verl imports it through `actor_rollout_ref.model.external_lib` when a process builds the model
config, which is after verl itself is imported (`plugin` runs in the middle of that) and before
either registry is read.
"""

from __future__ import annotations

from verl.workers.engine.base import EngineRegistry
from verl.workers.rollout.base import _ROLLOUT_REGISTRY
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry

from disco_rl.trainer.cpu.engine import CpuEngineWithLMHead

ROLLOUT = "disco_cpu"
"""The value of `actor_rollout_ref.rollout.name`."""


def _load_replica() -> type[RolloutReplica]:
    from disco_rl.trainer.cpu.replica import CpuReplica

    return CpuReplica


EngineRegistry.register(model_type="language_model", backend="fsdp2", device="cpu")(
    CpuEngineWithLMHead
)
RolloutReplicaRegistry.register(ROLLOUT, _load_replica)
_ROLLOUT_REGISTRY[(ROLLOUT, "async")] = "disco_rl.trainer.cpu.weights.WeightReceiver"
