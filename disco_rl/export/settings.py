"""`disco.json`: how a model's Driver was trained, so that `ask` runs it the same way.

It stands in the model's folder and holds values of configs/ask.yaml: `driver` (prompts, template,
limits, sampling), `worker` where it needs no server, and `document`. All of it can be overridden.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

FILE = "disco.json"
VERSION = 1
_DRIVER = (
    "prompts",
    "window",
    "max_call_tokens",
    "max_stages",
    "max_plan_nodes",
    "max_instruction_words",
    "repairs",
)


def settings_of(config: Mapping[str, Any], document: Mapping[str, Any] | None) -> dict[str, Any]:
    """What of a run's config (plain containers) an asker needs.

    `document` is {tokenizer, shard_size} of the run's context store, where it is known. Nothing of
    the Worker that belongs to one machine is kept: no cache folder, and no Worker that is served.
    """
    driver: dict[str, Any] = {
        key: value
        for key in _DRIVER
        if (value := (config.get("driver") or {}).get(key)) is not None
    }
    data = config.get("data") or {}
    template = data.get("apply_chat_template_kwargs")
    if template:
        driver["template"] = dict(template)
    validation = ((config.get("actor_rollout_ref") or {}).get("rollout") or {}).get("val_kwargs")
    if validation:
        driver["sampling"] = (
            {k: validation[k] for k in ("temperature", "top_p", "top_k") if k in validation}
            if validation.get("do_sample")
            else {"temperature": 0.0}
        )
    settings: dict[str, Any] = {"version": VERSION, "driver": driver}
    worker = config.get("worker") or {}
    if worker.get("kind") == "retriever" and not worker.get("embeddings_url"):
        settings["worker"] = {k: v for k, v in worker.items() if k != "cache_dir"}
    if document:
        settings["document"] = dict(document)
    return settings


def write_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    text = json.dumps({"version": VERSION, **settings}, indent=2, sort_keys=True)
    (folder / FILE).write_text(text + "\n", encoding="utf-8")


def read_settings(folder: str | Path) -> dict[str, Any]:
    """The folder's settings; empty where there are none. Raises `ValueError` for a bad file."""
    path = Path(folder).expanduser() / FILE
    if not path.is_file():
        return {}
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
        version = settings["version"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: not readable ({error!r}); export the model again") from error
    if version != VERSION:
        raise ValueError(f"{path}: version {version}, but this program reads {VERSION}")
    return {key: value for key, value in settings.items() if key != "version"}


def settings_overrides(folder: str | Path, *, worker: str | None = None) -> list[str]:
    """The folder's settings as Hydra overrides; none of the Worker's where another is asked for."""
    settings = read_settings(folder)
    own = settings.get("worker") or {}
    if worker is not None and worker != own.get("kind"):
        settings.pop("worker", None)
    elif own:
        settings["worker"] = {key: value for key, value in own.items() if key != "kind"}
    overrides = [f"worker={own['kind']}"] if "worker" in settings else []
    for key, value in _leaves(settings):
        overrides.append(f"++{key}={hydra_value(value)}")
    return overrides


def hydra_value(value: Any) -> str:
    """A plain value as Hydra's override grammar reads it back."""
    if isinstance(value, str):
        return "'" + value.replace("\\'", "\\\\'").replace("'", "\\'") + "'"
    if isinstance(value, list | tuple):
        return "[" + ",".join(hydra_value(item) for item in value) + "]"
    return json.dumps(value)


def _leaves(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, inner in value.items():
        if isinstance(inner, Mapping):
            yield from _leaves(inner, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", inner
