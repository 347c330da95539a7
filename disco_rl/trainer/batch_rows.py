"""The rows of a step as verl's TransferQueue holds them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transfer_queue as tq
from transfer_queue import KVBatchMeta

from disco_rl.trainer.facts import TrajectoryFacts
from disco_rl.trainer.rows import check_row
from disco_rl.trainer.step_credit import Row

_TENSORS = (
    "prompts",
    "responses",
    "input_ids",
    "loss_mask",
    "response_mask",
    "rollout_log_probs",
    "old_log_probs",
)


@dataclass(frozen=True)
class BatchRows:
    """Rows in the batch's order. `tensors` maps a field to one 1-D tensor a row."""

    keys: Sequence[str]
    padding: Sequence[bool]
    tensors: Mapping[str, Sequence[torch.Tensor]]
    extra: Sequence[Mapping[str, Any]]

    @classmethod
    def fetch(cls, batch: KVBatchMeta) -> "BatchRows":
        data = tq.kv_batch_get(
            keys=batch.keys,
            partition_id=batch.partition_id,
            select_fields=[*_TENSORS, "extra_fields"],
        )
        return cls(
            keys=list(batch.keys),
            padding=[bool(tag.get("is_padding", False)) for tag in batch.tags],
            tensors={name: list(data[name].unbind()) for name in _TENSORS},
            extra=[getattr(extra, "data", extra) for extra in data["extra_fields"]],
        )

    def with_mask(self, batch: KVBatchMeta) -> "BatchRows":
        """With the response mask read again, which verl's rollout correction may have thinned."""
        data = tq.kv_batch_get(
            keys=batch.keys, partition_id=batch.partition_id, select_fields=["response_mask"]
        )
        return replace(
            self, tensors={**self.tensors, "response_mask": list(data["response_mask"].unbind())}
        )

    def facts(self) -> dict[str, TrajectoryFacts]:
        """By trajectory (`<uid>_<session>`), padding left out."""
        found: dict[str, TrajectoryFacts] = {}
        for key, padding, extra in zip(self.keys, self.padding, self.extra, strict=True):
            name = key.rsplit("_", 1)[0]
            if not padding and name not in found:
                found[name] = TrajectoryFacts.from_dict(extra["reward_extra_info"]["disco"])
        return found

    def rows(self) -> list[Row]:
        return [
            Row(key, int(mask.sum()), padding)
            for key, mask, padding in zip(
                self.keys, self.tensors["response_mask"], self.padding, strict=True
            )
        ]

    def check(self) -> None:
        """Raises `RowError` for a row that isn't exactly what was sampled."""
        facts = self.facts()
        for i, key in enumerate(self.keys):
            if not self.padding[i]:
                row = {name: self.tensors[name][i].numpy() for name in _TENSORS}
                row["digest"] = self.extra[i]["digest"]
                check_row(key, row, masked=facts[key.rsplit("_", 1)[0]].masked is not None)

    def logprob_diff_max(self) -> float:
        """Largest |rollout - trainer| log-probability over the sampled tokens; 0 without any."""
        rows = zip(
            self.tensors["rollout_log_probs"],
            self.tensors["old_log_probs"],
            self.tensors["loss_mask"],
            strict=True,
        )
        diffs = [((a.float() - b.float()).abs() * mask).max().item() for a, b, mask in rows]
        return max(diffs, default=0.0)

    def spread(self, scalars: np.ndarray) -> torch.Tensor:
        """One scalar a row over its tokens in the loss: nested, float32, (rows, tokens)."""
        return torch.nested.as_nested_tensor(
            [
                mask.to(torch.float32) * float(scalar)
                for mask, scalar in zip(self.tensors["response_mask"], scalars, strict=True)
            ],
            layout=torch.jagged,
        )


def required_multiple(config: Any, dp_size: int, updates: int) -> int:
    """What the number of rows must divide by: ranks, updates, and fixed micro-batches if any."""
    ref = config.actor_rollout_ref
    micro = 1
    if not ref.actor.use_dynamic_bsz:
        micro = math.lcm(
            ref.actor.ppo_micro_batch_size_per_gpu or 1,
            ref.rollout.log_prob_micro_batch_size_per_gpu or 1,
            ref.ref.log_prob_micro_batch_size_per_gpu or 1,
        )
    return dp_size * updates * micro


def save_failed(folder: str, step: int, batch: KVBatchMeta) -> Path:
    """Everything the step was trained on, for `torch.load(path, weights_only=False)`."""
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id)
    fields = {
        name: list(value.unbind()) if isinstance(value, torch.Tensor) else list(value)
        for name, value in data.items()
    }
    path = Path(folder) / f"failed_step_{step}.pt"
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"step": step, "keys": list(batch.keys), "tags": batch.tags, "fields": fields}, path)
    return path
