"""Registers the CPU engine, the CPU rollout and its checkpoint engine with verl.

verl imports it through `actor_rollout_ref.model.external_lib` when a process builds the model
config, which is after verl itself is imported (`plugin` runs in the middle of that) and before
the registries are read; a rollout process of its own, through
`checkpoint_engine.custom_backend_module`.
"""

from __future__ import annotations

from verl.workers.engine.base import EngineRegistry
from verl.workers.rollout.base import _ROLLOUT_REGISTRY
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry

import disco_rl.trainer.cpu.transfer  # noqa: F401  (registers itself)
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
