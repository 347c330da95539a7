"""Writes a checkpoint as a Hugging Face folder, and proves that it is the trained actor."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from disco_rl.export.card import model_card
from disco_rl.export.checkpoint import Checkpoint, CheckpointError, find_checkpoint, merge
from disco_rl.export.settings import settings_of, write_settings
from disco_rl.run_folder import read_config, read_metrics

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

TOLERANCE = {"fp32": 1e-5, "bf16": 2e-2}
"""Largest difference in logits, as a share of the largest logit, by dtype of the export."""

_WEIGHTS = ("*.safetensors", "*.safetensors.index.json", "*.bin", "*.bin.index.json", "*.pt")


class ExportError(ValueError):
    """An export that was refused; nothing is left at its place."""


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written, and the largest difference in logits to the trained actor."""

    folder: Path
    step: int | None
    parameters: int
    difference: float
    largest_logit: float
    n_tokens: int


def export(
    checkpoint: str | Path,
    out: str | Path,
    *,
    dtype: str = "fp32",
    tolerance: float | None = None,
    force: bool = False,
) -> Exported:
    """Writes `out`: safetensors, tokenizer, chat template, generation config, card, disco.json.

    `tolerance` is a share of the largest logit (default by dtype). The folder appears at once or
    not at all. Raises `CheckpointError` for a partial or foreign checkpoint, `ExportError` where
    `out` isn't empty (without `force`) or the export's logits differ from the actor's.
    """
    if dtype not in TOLERANCE:
        raise ExportError(f"dtype is {dtype!r}; choose from {list(TOLERANCE)}")
    found = find_checkpoint(checkpoint)
    target = Path(out).expanduser().resolve()
    if target.exists() and (not target.is_dir() or any(target.iterdir())) and not force:
        raise ExportError(f"{target} isn't empty; give another folder, or --force to replace it")
    if target == found.run or target in found.actor.parents or found.actor in target.parents:
        raise ExportError(f"{target} is part of the run; give a folder of its own")
    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        exported = _write(found, work, target, dtype, tolerance or TOLERANCE[dtype])
        _replace(work, target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return exported


def _write(found: Checkpoint, work: Path, target: Path, dtype: str, tolerance: float) -> Exported:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    _quiet()
    trained = _model(found, merge(found))
    _check_own_weights(found, trained, tolerance)
    for file in found.huggingface.iterdir():
        if file.is_file() and not any(file.match(pattern) for pattern in _WEIGHTS):
            shutil.copy2(file, work / file.name)
    tokenizer = AutoTokenizer.from_pretrained(str(work))
    if not getattr(tokenizer, "chat_template", None):
        raise CheckpointError(f"{found.huggingface}: the tokenizer has no chat template")
    _generation_config(trained, found, tokenizer)
    kept = {name: p.detach().clone() for name, p in trained.state_dict().items()}
    trained.to(torch.float32 if dtype == "fp32" else torch.bfloat16).save_pretrained(str(work))
    trained.to(torch.float32).load_state_dict(kept)
    reread = AutoModelForCausalLM.from_pretrained(str(work), dtype=torch.float32)
    difference, largest, n_tokens = compare_logits(trained, reread)
    if not difference <= tolerance * max(largest, 1.0):
        raise ExportError(
            f"the export's logits differ from the trained actor's by {difference:.3g}, over the "
            f"{tolerance * max(largest, 1.0):.3g} allowed (largest logit {largest:.3g}); "
            "nothing was written"
        )
    exported = Exported(target, found.step, trained.num_parameters(), difference, largest, n_tokens)
    config = read_config(found.run)
    write_settings(work, settings_of(config or {}, _document(config, found.run)))
    card = model_card(target.name, exported, dtype, config, read_metrics(found.run))
    (work / "README.md").write_text(card, encoding="utf-8")
    os.chmod(work, 0o755)  # mkdtemp makes it private, and safetensors its files
    for file in work.iterdir():
        os.chmod(file, 0o644)
    return exported


def _model(found: Checkpoint, state: dict[str, torch.Tensor]) -> PreTrainedModel:
    """The trained actor in fp32. Raises `CheckpointError` where parameters don't match."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(str(found.huggingface))
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    try:
        missing, unexpected = model.load_state_dict(state, strict=False)
    except RuntimeError as error:  # shapes
        raise CheckpointError(
            f"{found.actor}: the weights don't fit huggingface/config.json: {error}"
        ) from error
    tied = set(getattr(model, "all_tied_weights_keys", None) or ())
    missing = [key for key in missing if key not in tied]
    if missing or unexpected:
        raise CheckpointError(
            f"{found.actor}: weights missing {missing[:4]}, unknown {unexpected[:4]}, by "
            "huggingface/config.json; the checkpoint is of another model"
        )
    model.tie_weights()
    return model.eval()


def _check_own_weights(found: Checkpoint, trained: PreTrainedModel, tolerance: float) -> None:
    """Where verl wrote full weights too, they must be the shards' (a second opinion on the merge).

    Raises `CheckpointError` where they differ, as when two saves were mixed.
    """
    import torch
    from transformers import AutoModelForCausalLM

    if not any(found.huggingface.glob("*.safetensors")):
        return
    own = AutoModelForCausalLM.from_pretrained(str(found.huggingface), dtype=torch.float32)
    difference, largest, _ = compare_logits(trained, own)
    if not difference <= tolerance * max(largest, 1.0):
        raise CheckpointError(
            f"{found.actor}: the weights in huggingface/ differ from the shards' by "
            f"{difference:.3g} in logits; the checkpoint mixes two saves, export another step"
        )


def _quiet() -> None:
    """No progress bars, and no warning about the device mesh, which isn't used here."""
    import logging

    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    logging.getLogger("torch.distributed.device_mesh").setLevel(logging.ERROR)


def _generation_config(model: PreTrainedModel, found: Checkpoint, tokenizer: Any) -> None:
    """The checkpoint's own; else one that at least ends where the chat template ends."""
    from transformers import GenerationConfig

    if (found.huggingface / "generation_config.json").is_file():
        model.generation_config = GenerationConfig.from_pretrained(str(found.huggingface))
    if model.generation_config.eos_token_id is None:
        model.generation_config.eos_token_id = tokenizer.eos_token_id
    if model.generation_config.pad_token_id is None:
        model.generation_config.pad_token_id = tokenizer.pad_token_id


def compare_logits(trained: PreTrainedModel, exported: PreTrainedModel) -> tuple[float, float, int]:
    """Largest difference, largest logit, and number of tokens, over fixed pseudo-random ids."""
    import torch

    size = min(trained.config.vocab_size, exported.config.vocab_size)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, size, (4, 64), generator=generator)
    with torch.inference_mode():
        expected = trained(input_ids=ids).logits.float()
        given = exported(input_ids=ids).logits.float()
    return float((expected - given).abs().max()), float(expected.abs().max()), ids.numel()


def _document(config: Mapping[str, Any] | None, run: Path) -> dict[str, Any] | None:
    """How the run's contexts were cut, where its store is still there to say it."""
    from disco_rl.data import ContextStore, StoreError

    path = ((config or {}).get("disco") or {}).get("context_store")
    if not path:
        return None
    try:
        info = ContextStore(path).info
    except StoreError:
        return None
    return {"tokenizer": info.tokenizer, "shard_size": info.shard_size}


def _replace(work: Path, target: Path) -> None:
    """Moves `work` to `target`; what stood there goes only once the new one is in place."""
    old = None
    if target.exists():
        old = Path(tempfile.mkdtemp(prefix=f".{target.name}.old.", dir=target.parent)) / "was"
        os.replace(target, old)
    try:
        os.replace(work, target)
    except OSError:
        if old is not None:
            os.replace(old, target)
        raise
    finally:
        if old is not None:
            shutil.rmtree(old.parent, ignore_errors=True)
