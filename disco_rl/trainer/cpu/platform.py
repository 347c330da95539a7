"""verl's `cpu` platform, and a stand-in for the calls that `torch.cpu` lacks."""

from __future__ import annotations

import contextlib
import resource
import types
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import torch
from verl.plugin.platform import PlatformBase


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _zero(*_: Any, **__: Any) -> int:
    return 0


def peak_memory_bytes(*_: Any, **__: Any) -> int:
    """Largest resident size of this process so far; what verl logs as peak device memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _device_module() -> ModuleType:
    """A module with the part of `torch.cuda` that verl calls.

    `is_available` is False, so verl skips everything that only a device with its own memory needs
    (RNG state in checkpoints, memory snapshots, pinning).
    """
    shim = types.ModuleType("disco_rl_torch_cpu")
    members: dict[str, Any] = {
        "is_available": lambda: False,
        "device_count": lambda: 1,
        "current_device": lambda: torch.device("cpu"),
        "set_device": _nothing,
        "get_device_name": lambda *_: "cpu",
        "synchronize": _nothing,
        "empty_cache": _nothing,
        "ipc_collect": _nothing,
        "manual_seed": torch.manual_seed,
        "manual_seed_all": torch.manual_seed,
        "get_rng_state": torch.get_rng_state,
        "set_rng_state": torch.set_rng_state,
        "memory_allocated": _zero,
        "memory_reserved": _zero,
        "max_memory_allocated": peak_memory_bytes,
        "max_memory_reserved": peak_memory_bytes,
        "reset_peak_memory_stats": _nothing,
        "mem_get_info": lambda *_: (0, 0),
        "set_per_process_memory_fraction": _nothing,
        "Stream": torch.cpu.Stream,
        "stream": torch.cpu.stream,
        "current_stream": torch.cpu.current_stream,
    }
    for name, member in members.items():
        setattr(shim, name, member)
    return shim


class CpuPlatform(PlatformBase):
    """Training on the CPU, one process a logical GPU of Ray.

    Ray's placement groups and verl's resource check only know accelerators, so the resource is
    called GPU, and Ray is told that there are as many as processes (`startup.logical_gpus`).
    """

    def __init__(self) -> None:
        self._module = _device_module()

    @property
    def device_name(self) -> str:
        return "cpu"

    @property
    def vendor_name(self) -> str:
        return "cpu"

    @property
    def device_module(self) -> ModuleType:
        return self._module

    def is_available(self) -> bool:
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        # Never chosen by probing: only VERL_PLATFORM=cpu selects it.
        del use_smi_check
        return False

    def current_device(self) -> Any:
        # verl passes it to Tensor.to: an index would mean an accelerator.
        return torch.device("cpu")

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None:
        del device_index

    def synchronize(self, device_index: int | None = None) -> None:
        del device_index

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        del settings

    def empty_cache(self) -> None:
        return None

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
        del device_index
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextlib.contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        del msg
        yield

    def profiler_start(self) -> None:
        return None

    def profiler_stop(self) -> None:
        return None

    def ray_resource_name(self) -> str:
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> None:
        return None
