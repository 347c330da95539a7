"""The Workers: `retriever` (no language model) and `chat` (any OpenAI-compatible endpoint)."""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from disco_rl.engine.faults import Faults
from disco_rl.engine.pool import WorkerPool
from disco_rl.engine.protocols import Worker
from disco_rl.engine.workers.chat import ChatWorker, ChatWorkerConfig
from disco_rl.engine.workers.retriever import Retriever, RetrieverConfig

WORKERS: dict[str, tuple[Any, Any]] = {
    "retriever": (Retriever, RetrieverConfig),
    "chat": (ChatWorker, ChatWorkerConfig),
}
"""By `kind`: the Worker and its config."""


POOL_KEYS = ("max_concurrency", "max_findings", "overcommit")


def build_pool(
    config: Mapping[str, Any], *, faults: Mapping[str, Any] | None = None, processes: int = 1
) -> WorkerPool:
    """The pool of a config group `worker`, for one of so many processes that share its servers.

    `faults` are the fields of `Faults`. Raises `ValueError` naming what is unknown or missing.
    """
    worker = dict(config)
    worker.pop("serve", None)  # `disco-rl serve workers` reads it
    limits = {key: worker.pop(key) for key in POOL_KEYS if key in worker}
    for shared in ("slots", "reads"):
        if shared in worker:
            worker[shared] = -(-worker[shared] // processes)
    return WorkerPool(
        build_worker(worker, processes),
        processes=processes,
        faults=Faults(**faults or {}),
        **limits,
    )


def build_worker(config: Mapping[str, Any], processes: int = 1) -> Worker:
    """The Worker of a config group: its `kind`, and the fields of that kind's config.

    `processes` share its servers.

    Raises `ValueError` naming what is unknown or missing.
    """
    kind = config.get("kind")
    if kind not in WORKERS:
        raise ValueError(f"worker.kind is {kind!r}; choose from {list(WORKERS)}")
    make, schema = WORKERS[kind]
    known = {f.name: f for f in fields(schema)}
    given = {key: config[key] for key in config if key != "kind"}
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise ValueError(f"worker ({kind}): unknown keys {unknown}; known: {sorted(known)}")
    missing = [
        name
        for name, f in known.items()
        if name not in given and f.default is MISSING and f.default_factory is MISSING
    ]
    if missing:
        raise ValueError(f"worker ({kind}): set {', '.join('worker.' + name for name in missing)}")
    if kind == "chat":
        return ChatWorker(ChatWorkerConfig(**given), processes)
    return make(schema(**given))
