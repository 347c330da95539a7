"""verl's TransferQueue in memory: the same functions over a dict, rows nested as it nests them."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
import transfer_queue
from tensordict import NonTensorStack, TensorDict
from transfer_queue import KVBatchMeta


class MemoryQueue:
    """Keys to fields and tags, one partition."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.fields: dict[str, dict[str, Any]] = {}
        self.tags: dict[str, dict[str, Any]] = {}
        for name in ("kv_batch_get", "kv_batch_put", "kv_clear", "kv_list"):
            monkeypatch.setattr(transfer_queue, name, getattr(self, name))

    def kv_batch_get(
        self, keys: Sequence[str], partition_id: str, select_fields: Sequence[str] | None = None
    ) -> TensorDict:
        names = select_fields or list(self.fields[keys[0]])
        data = {}
        for name in names:
            values = [self.fields[key].get(name) for key in keys]
            if all(value is None for value in values):
                continue  # as in TransferQueue: a field nobody wrote isn't there
            if all(isinstance(value, torch.Tensor) for value in values):
                data[name] = torch.nested.as_nested_tensor(values, layout=torch.jagged)
            else:
                data[name] = NonTensorStack(*values)
        return TensorDict(data, batch_size=len(keys))

    def kv_batch_put(
        self,
        keys: Sequence[str],
        partition_id: str,
        fields: TensorDict | None = None,
        tags: Sequence[dict[str, Any]] | None = None,
    ) -> KVBatchMeta:
        for i, key in enumerate(keys):
            row = self.fields.setdefault(key, {})
            for name, values in fields.items() if fields is not None else ():
                value = values.unbind()[i] if isinstance(values, torch.Tensor) else values[i]
                row[name] = (
                    getattr(value, "data", value) if not isinstance(value, torch.Tensor) else value
                )
            self.tags.setdefault(key, {}).update(tags[i] if tags else {})
        return self.meta(keys)

    def kv_clear(self, keys: Sequence[str], partition_id: str) -> None:
        for key in keys:
            self.fields.pop(key, None)
            self.tags.pop(key, None)

    def kv_list(self, partition_id: str | None = None) -> dict[str, dict[str, Any]]:
        return {"train": self.tags}

    def meta(self, keys: Sequence[str]) -> KVBatchMeta:
        return KVBatchMeta(
            keys=list(keys), tags=[self.tags[key] for key in keys], partition_id="train"
        )
