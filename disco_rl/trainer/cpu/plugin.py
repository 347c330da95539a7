"""Importing this module makes `cpu` a platform of verl, in the importing process.

verl imports it itself, in every process, when VERL_USE_EXTERNAL_MODULES names it.
"""

from __future__ import annotations

from typing import Any

import verl.utils.distributed as verl_distributed
from verl.plugin.platform import PlatformRegistry

from disco_rl.trainer.cpu.platform import CpuPlatform

if PlatformRegistry.get("cpu") is None:
    PlatformRegistry.register("cpu")(CpuPlatform)

_stock = verl_distributed.initialize_global_process_group_ray


def initialize_global_process_group_ray(
    timeout_second: int | None = None, backend: str | None = None
) -> Any:
    """verl's own, with one backend: it builds "cpu:gloo,cpu:gloo" here, which torch rejects."""
    return _stock(timeout_second, backend or "cpu:gloo")


# Patched before verl.workers.engine_workers imports the name.
verl_distributed.initialize_global_process_group_ray = initialize_global_process_group_ray
