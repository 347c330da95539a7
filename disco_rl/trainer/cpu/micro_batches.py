"""Micro-batches of rows of like length: verl pads each to its longest row on this device.

verl's own split balances the work of micro-batches, so each holds rows of all lengths and, where
padding can't be removed (it takes flash attention), most of what is computed is padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu


def groups_by_length(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Rows from short to long in groups of at most `budget` padded tokens, or of one row."""
    groups: list[list[int]] = []
    for row in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if not groups or lengths[row] * (len(groups[-1]) + 1) > budget:
            groups.append([])
        groups[-1].append(row)
    return groups


def split_to(groups: list[list[int]], count: int) -> list[list[int]]:
    """`groups` with the largest halved until there are `count`, which every rank must have.

    Raises `ValueError` where there are fewer rows than that.
    """
    groups = [list(group) for group in groups]
    if sum(map(len, groups)) < count:
        raise ValueError(f"{sum(map(len, groups))} rows can't make {count} micro-batches")
    while len(groups) < count:
        largest = max(range(len(groups)), key=lambda i: len(groups[i]))
        group = groups[largest]
        groups[largest : largest + 1] = [group[: len(group) // 2], group[len(group) // 2 :]]
    return groups


def micro_batches(data: TensorDict, group: object) -> tuple[list[TensorDict], list[list[int]]]:
    """The micro-batches of `data` (nested `input_ids`) and the rows that each holds."""
    lengths = data["input_ids"].offsets().diff().tolist()
    groups = groups_by_length(lengths, int(data["max_token_len_per_gpu"]))
    count = torch.tensor([len(groups)])
    torch.distributed.all_reduce(count, op=torch.distributed.ReduceOp.MAX, group=group)
    groups = split_to(groups, int(count))
    return select(data, groups), groups


def select(data: TensorDict, groups: Sequence[Sequence[int]]) -> list[TensorDict]:
    """What verl's `index_select_tensor_dict` gives for each group.

    That takes a nested tensor apart row by row at every call, a fifth of a step's forward and
    backward passes; here it is done once for all groups.
    """
    parts: list[dict[str, Any]] = [{} for _ in groups]
    for key, value in data.items():
        nested = isinstance(value, torch.Tensor) and value.is_nested
        rows = value.unbind() if nested else None
        for part, group in zip(parts, groups, strict=True):
            if rows is not None:
                part[key] = tu.nested_tensor_from_tensor_list(
                    [rows[row] for row in group],
                    ragged_idx=getattr(value, "_ragged_idx", value.dim() - 1),
                )
            else:
                part[key] = value[torch.tensor(group)] if value.shape else value
    return [
        TensorDict(part, batch_size=len(group)) for part, group in zip(parts, groups, strict=True)
    ]
