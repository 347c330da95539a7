"""Weights from trainers to rollout processes of their own, by a key-value store over TCP.

verl's engine `disco_cpu`, for `mode=separate_async` without a GPU: its own engines need one. The
trainer's rank 0 serves the store and every replica reads each weight from it, so this is for models
of some megabytes.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

import ray
import torch
from torch.distributed import TCPStore
from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry

_PATIENCE = timedelta(seconds=300)


@CheckpointEngineRegistry.register("disco_cpu")
class StoreCheckpointEngine(CheckpointEngine):
    """One update a call of `send_weights`, whose keys are numbered by update."""

    def __init__(self, bucket_size: int, is_master: bool = False) -> None:
        del bucket_size
        self._is_master = is_master
        self._store: TCPStore | None = None
        self._update = 0

    def prepare(self) -> tuple[str, int] | None:
        """Address of the store, from the process that serves it."""
        if not self._is_master:
            return None
        if self._store is None:
            host = ray.util.get_node_ip_address()
            self._store = TCPStore(
                host, 0, is_master=True, wait_for_workers=False, timeout=_PATIENCE
            )
        return self._store.host, self._store.port

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[Any]
    ) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        (address,) = [found for found in metadata if found is not None]
        return (
            {"address": [address] * actor_wg_world_size},
            {"address": [address] * rollout_world_size},
        )

    def init_process_group(self, address: tuple[str, int]) -> None:
        self._update += 1
        if self._store is None:
            self._store = TCPStore(*address, is_master=False, timeout=_PATIENCE)

    def finalize(self) -> None:
        """All have what was sent."""
        if self._is_master and self._store is not None:
            for index in range(int(self._store.get(self._key("count")))):
                self._store.delete_key(self._key(index))

    async def send_weights(
        self, weights: Iterable[tuple[str, torch.Tensor]], global_steps: int | None = None
    ) -> dict[str, float]:
        """Every rank draws every weight, which is a collective; rank 0 stores it."""
        assert self._store is not None
        count = 0
        for name, tensor in weights:
            if self._is_master:
                packed = io.BytesIO()
                torch.save((name, tensor.detach().contiguous()), packed)
                self._store.set(self._key(count), packed.getvalue())
                count += 1
        if self._is_master:
            self._store.set(self._key("count"), str(count))
        return {}

    def receive_weights(
        self, global_steps: int | None = None
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """Waits until all are there."""
        assert self._store is not None
        for index in range(int(self._store.get(self._key("count")))):
            packed = io.BytesIO(self._store.get(self._key(index)))
            yield torch.load(packed, weights_only=True)

    def _key(self, name: object) -> str:
        return f"{self._update}/{name}"
