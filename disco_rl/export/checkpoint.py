"""Finds verl's checkpoint, checks that it is whole, and merges its FSDP shards.

RUN/latest_checkpointed_iteration.txt       written last: the newest whole step
RUN/global_step_N/actor/fsdp_config.json    world size
                        model_world_size_W_rank_R.pt
                        huggingface/        config, tokenizer, and weights where asked for
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_STEP = re.compile(r"global_step_(\d+)$")
_NEEDED = ("config.json", "tokenizer_config.json")


class CheckpointError(ValueError):
    """A checkpoint that is missing, partial or not verl's; names what isn't there."""


@dataclass(frozen=True)
class Checkpoint:
    """A whole checkpoint of an actor. `step` is None where the folder doesn't say it."""

    actor: Path
    world_size: int
    step: int | None

    @property
    def shards(self) -> list[Path]:
        return [
            self.actor / f"model_world_size_{self.world_size}_rank_{rank}.pt"
            for rank in range(self.world_size)
        ]

    @property
    def huggingface(self) -> Path:
        return self.actor / "huggingface"

    @property
    def run(self) -> Path:
        """The run's folder, which holds its config and metrics."""
        return self.actor.parent.parent


def find_checkpoint(path: str | Path) -> Checkpoint:
    """The checkpoint at `path`: a run folder (its newest), a global_step_N, or an actor folder.

    Raises `CheckpointError` naming what is missing.
    """
    folder = Path(path).expanduser().resolve()
    if not folder.is_dir():
        raise CheckpointError(f"{path}: no such folder")
    actor = _actor(folder)
    config = actor / "fsdp_config.json"
    if not config.is_file():
        raise CheckpointError(
            f"{actor}: fsdp_config.json is missing, so this is no finished checkpoint of verl's "
            f"FSDP engine; it holds {_shown(actor)}"
        )
    try:
        world_size = int(json.loads(config.read_text(encoding="utf-8"))["world_size"])
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{config}: world_size can't be read ({error!r})") from error
    match = _STEP.search(actor.parent.name)
    found = Checkpoint(actor, world_size, int(match[1]) if match else None)
    needed = [*found.shards, *(found.huggingface / name for name in _NEEDED)]
    missing = [str(file.relative_to(actor)) for file in needed if not file.is_file()]
    if missing:
        raise CheckpointError(
            f"{actor}: the checkpoint is partial: {', '.join(missing[:8])} missing"
            f"{f' and {len(missing) - 8} more' if len(missing) > 8 else ''}; "
            "export another step, or save again with checkpoint.save_contents holding `model`"
        )
    return found


def merge(checkpoint: Checkpoint) -> dict[str, torch.Tensor]:
    """The actor's full weights, in the precision they were saved in (verl's merger casts to bf16).

    LoRA factors are multiplied into their base weights. Raises `CheckpointError` for a placement
    that can't be joined, or shards that disagree.
    """
    import torch
    import torch.distributed.tensor  # registers the classes that the shards hold

    parts: list[dict[str, Any]] = []
    for shard in checkpoint.shards:
        try:
            # DTensors pickle their device mesh, so weights_only can't read them. Same trust as
            # resuming the run: a checkpoint is code, export only your own.
            parts.append(torch.load(shard, map_location="cpu", weights_only=False))
        except Exception as error:  # a cut-off file raises anything
            raise CheckpointError(f"{shard}: can't be read ({error}); it may be cut off") from error
    if any(part.keys() != parts[0].keys() for part in parts):
        raise CheckpointError(f"{checkpoint.actor}: the shards hold different parameters")
    state = {key: _join(key, [part.pop(key) for part in parts]) for key in list(parts[0])}
    return _merge_lora(state, checkpoint.actor)


def _actor(folder: Path) -> Path:
    if (folder / "fsdp_config.json").is_file() or folder.name == "actor":
        return folder
    if _STEP.search(folder.name):
        if not (folder / "actor").is_dir():
            raise CheckpointError(f"{folder}: actor is missing; it holds {_shown(folder)}")
        return folder / "actor"
    tracker = folder / "latest_checkpointed_iteration.txt"
    if tracker.is_file():
        step = tracker.read_text(encoding="utf-8").strip()
        if not (folder / f"global_step_{step}" / "actor").is_dir():
            raise CheckpointError(f"{folder}: global_step_{step}/actor, the newest, is missing")
        return folder / f"global_step_{step}" / "actor"
    raise CheckpointError(
        f"{folder}: neither a run folder (latest_checkpointed_iteration.txt), a global_step_N, nor "
        f"an actor folder (fsdp_config.json); it holds {_shown(folder)}"
    )


def _join(key: str, pieces: list[Any]) -> torch.Tensor:
    import torch
    from torch.distributed.tensor import DTensor

    first = pieces[0]
    if not isinstance(first, DTensor):
        if len(pieces) == 1:
            return first
        if all(torch.equal(first, piece) for piece in pieces[1:]):
            return first  # a buffer, the same on every rank
        raise CheckpointError(f"parameter {key}: plain tensors that differ between the ranks")
    sharded = [(i, p) for i, p in enumerate(first.placements) if not p.is_replicate()]
    if not sharded:
        return first.to_local()
    if len(sharded) > 1 or not sharded[0][1].is_shard():
        raise CheckpointError(
            f"parameter {key} has placements {first.placements}; only plain FSDP, replicated or "
            "not, can be exported here (tensor parallel: use verl.model_merger)"
        )
    axis, placement = sharded[0]
    mesh = first.device_mesh.mesh  # rank numbers; the axes beside the sharded one hold copies
    ranks = mesh[tuple(slice(None) if i == axis else 0 for i in range(mesh.ndim))]
    locals_ = [pieces[int(rank)].to_local() for rank in ranks]
    whole = torch.cat(locals_, dim=placement.dim).contiguous()
    if whole.shape != first.shape:
        raise CheckpointError(
            f"parameter {key} joins to {tuple(whole.shape)}, not to {tuple(first.shape)}"
        )
    return whole


def _merge_lora(state: dict[str, torch.Tensor], actor: Path) -> dict[str, torch.Tensor]:
    adapters = [key for key in state if ".lora_A." in key]
    if not adapters:
        return state
    meta = actor / "lora_train_meta.json"
    if not meta.is_file():
        raise CheckpointError(f"{actor}: lora_train_meta.json is missing, so LoRA has no scale")
    scale = _lora_scale(json.loads(meta.read_text(encoding="utf-8")), meta)
    merged: dict[str, torch.Tensor] = {}
    for key, tensor in state.items():
        if ".lora_" not in key:
            merged[key.removeprefix("base_model.model.").replace(".base_layer.", ".")] = tensor
    for key in adapters:
        name = key.removeprefix("base_model.model.").partition(".lora_A.")[0] + ".weight"
        if name not in merged:
            raise CheckpointError(
                f"{actor}: {name} is missing; the checkpoint holds LoRA factors only "
                "(save_lora_only), so export it from the base model with peft"
            )
        a, b = state[key].float(), state[key.replace(".lora_A.", ".lora_B.")].float()
        merged[name] = (merged[name].float() + scale * (b @ a)).to(merged[name].dtype)
    return merged


def _lora_scale(meta: Mapping[str, Any], file: Path) -> float:
    try:
        return float(meta["lora_alpha"]) / float(meta["r"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{file}: r and lora_alpha can't be read ({error!r})") from error


def _shown(folder: Path) -> str:
    names = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "") if names else "nothing"
