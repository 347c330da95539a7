"""The model card: what was trained, on what, how, and with which figures at the end."""

from __future__ import annotations

import importlib.metadata
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from disco_rl.config import hide_secrets

if TYPE_CHECKING:
    from disco_rl.export.export import Exported

_KEYS = (
    "data.train_batch_size",
    "actor_rollout_ref.rollout.n",
    "actor_rollout_ref.actor.optim.lr",
    "actor_rollout_ref.actor.loss_agg_mode",
    "actor_rollout_ref.rollout.temperature",
    "disco.segment_weighting",
    "disco.reward",
    "judge",
    "worker",
    "driver",
    "data.train_files",
    "data.seed",
    "trainer.device",
)


def model_card(
    name: str,
    exported: Exported,
    dtype: str,
    config: Mapping[str, Any] | None,
    metrics: Mapping[int, Mapping[str, Any]],
) -> str:
    """README.md of the exported folder. Secrets are hidden; unknown parts are said to be so."""
    config = hide_secrets(dict(config)) if config else None
    return "\n".join([*_front(config), *_body(name, exported, dtype, config, metrics)]) + "\n"


def _front(config: Mapping[str, Any] | None) -> Iterator[str]:
    yield "---"
    yield "library_name: transformers"
    yield "pipeline_tag: text-generation"
    base = _get(config, "actor_rollout_ref.model.path")
    if isinstance(base, str) and base.count("/") == 1 and not Path(base).exists():
        yield f"base_model: {base}"
    yield "tags: [disco-rl, grpo, verl]"
    yield "---"


def _body(
    name: str,
    exported: Exported,
    dtype: str,
    config: Mapping[str, Any] | None,
    metrics: Mapping[int, Mapping[str, Any]],
) -> Iterator[str]:
    yield f"# {name}"
    yield ""
    yield (
        "A Driver: a chat model that plans lookups over a document it never reads, combines what "
        "Workers find, and reviews its answer. Trained with GRPO by disco-rl."
    )
    yield ""
    yield "```"
    yield f'disco-rl ask DOC "question" --model {name}'
    yield "```"
    yield ""
    yield f"- step {'unknown' if exported.step is None else exported.step}"
    yield f"- {exported.parameters:,} parameters, stored as {dtype}"
    yield (
        f"- logits differ from the trained actor's by at most {exported.difference:.3g} "
        f"(largest logit {exported.largest_logit:.3g}, {exported.n_tokens} fixed tokens)"
    )
    yield f"- made with {_versions()}"
    yield ""
    yield "## Training"
    yield ""
    if config is None:
        yield "The run's folder holds no config.yaml, so its settings are not on record."
    else:
        yield f"Started from `{_get(config, 'actor_rollout_ref.model.path')}`."
        yield ""
        yield "| setting | value |"
        yield "|---|---|"
        for key in _KEYS:
            value = _get(config, key)
            if value is not None:
                yield f"| `{key}` | {_cell(value)} |"
    yield ""
    yield "## Last metrics"
    yield ""
    yield from _metrics(metrics, exported.step)
    if config is not None:
        yield ""
        yield "<details><summary>The whole config</summary>"
        yield ""
        yield "```json"
        yield json.dumps(config, indent=1, default=str)
        yield "```"
        yield ""
        yield "</details>"


def _metrics(metrics: Mapping[int, Mapping[str, Any]], step: int | None) -> Iterator[str]:
    """The latest value of each metric up to the exported step: validation isn't run at each."""
    last: dict[str, tuple[int, float]] = {}
    for at, values in metrics.items():
        if step is not None and at > step:
            continue
        for key, value in values.items():
            if isinstance(value, int | float) and math.isfinite(value):
                last[key] = (at, float(value))
    if not last:
        yield "None are on record in the run's folder."
        return
    yield "| metric | value | step |"
    yield "|---|---|---|"
    for key, (at, number) in sorted(last.items()):
        yield f"| `{key}` | {number:.6g} | {at} |"


def _get(config: Mapping[str, Any] | None, dotted: str) -> Any:
    value: Any = config
    for key in dotted.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return "`" + text.replace("|", "\\|").replace("\n", " ") + "`"


def _versions() -> str:
    names = ("disco-rl", "verl", "torch", "transformers")
    found = []
    for name in names:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join(found)
