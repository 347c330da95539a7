"""A step's output: one JSON line an input, in order, and a manifest written last.

A killed step goes on after its last whole line, so the bytes are those of an unbroken run.
"""

import hashlib
import json
import multiprocessing
import os
import threading
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from pydantic import TypeAdapter

from data_pipeline.writer import write_json

T = TypeVar("T")
R = TypeVar("R")
Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Backend:
    """Where the per-sample function runs: here (0 workers), in processes, in threads (for calls
    that wait), or under Ray Data, on one machine or many."""

    kind: Literal["process", "thread", "ray"] = "process"
    workers: int = 0


def run_lines(
    folder: Path,
    name: str,
    settings: Mapping[str, Any],
    items: Iterable[T],
    work: Callable[[T], Any],
    *,
    backend: Backend = Backend(),
    count: Callable[[Any], Iterable[str]] | None = None,
    progress: Callable[[int], object] = lambda n_done: None,
) -> Manifest:
    """Writes `work` of each item to `NAME.jsonl` in `folder`, or goes on with it.

    Returns the manifest: settings, number of lines, sha256, and how often `count` gave each name.
    Raises `ValueError` when the file was made with other settings.
    """
    folder.mkdir(parents=True, exist_ok=True)
    manifest = _begun(folder, name, settings)
    if manifest["complete"]:
        progress(manifest["lines"])
        return manifest
    path = folder / f"{name}.jsonl"
    counts: Counter[str] = Counter()
    with path.open("a+b") as file:
        digest, done = _resume(file, count, counts)
        progress(done)
        for value in ordered(work, islice(items, done, None), backend):
            line = to_line(value)
            file.write(line)
            file.flush()
            digest.update(line)
            if count is not None:
                counts.update(count(json.loads(line)))
            done += 1
            progress(done)
    manifest |= {
        "complete": True,
        "lines": done,
        "sha256": digest.hexdigest(),
        "counts": dict(sorted(counts.items())),
    }
    write_manifest(folder, name, manifest)
    return manifest


def read_lines(path: Path, type_: type[T]) -> Iterator[T]:
    """The values of a complete line file."""
    adapter: TypeAdapter[T] = _adapter(cast(Hashable, type_))
    with path.open("rb") as file:
        for line in file:
            yield adapter.validate_json(line)


def to_line(value: Any) -> bytes:
    return _adapter(cast(Hashable, type(value))).dump_json(value) + b"\n"


def write_manifest(folder: Path, name: str, manifest: Mapping[str, Any]) -> None:
    """Whole or not at all."""
    temporary = folder / f".{name}.json"
    write_json(temporary, manifest)
    temporary.replace(folder / f"{name}.json")


def read_manifest(folder: Path, name: str) -> Manifest:
    """Raises `ValueError` where the step hasn't been completed."""
    file = folder / f"{name}.json"
    manifest = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    if not manifest.get("complete"):
        raise ValueError(f"{folder}: step {name} isn't complete; run `python -m data_pipeline all`")
    return dict(manifest)


def ordered(
    work: Callable[[T], R], items: Iterable[T], backend: Backend = Backend()
) -> Iterator[R]:
    """`map`, in order, on the backend, with a bounded number of items under way."""
    if backend.kind == "ray":
        yield from _ray(work, items)
        return
    if backend.workers < 1:
        yield from map(work, items)
        return
    with _executor(backend) as executor:
        waiting: deque[Future[R]] = deque()
        for item in items:
            waiting.append(executor.submit(work, item))
            if len(waiting) >= 2 * backend.workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _begun(folder: Path, name: str, settings: Mapping[str, Any]) -> Manifest:
    file = folder / f"{name}.json"
    plain = json.loads(json.dumps(settings))
    if not file.is_file():
        (folder / f"{name}.jsonl").unlink(missing_ok=True)  # of nobody knows which settings
        manifest: Manifest = {"settings": plain, "complete": False}
        write_manifest(folder, name, manifest)
        return manifest
    manifest = json.loads(file.read_text(encoding="utf-8"))
    found = manifest["settings"]
    if found != plain:
        changed = sorted(k for k in {*found, *plain} if found.get(k) != plain.get(k))
        raise ValueError(
            f"{file}: made with other settings, or from other input ({', '.join(changed)}); "
            f"remove {file.name} there and those of the later steps, or choose another out="
        )
    return manifest


def _resume(file: Any, count: Callable[[Any], Iterable[str]] | None, counts: Counter[str]) -> Any:
    """Drops a torn last line; the digest and the number of the whole ones."""
    digest, done, whole = hashlib.sha256(), 0, 0
    file.seek(0)
    for line in file:
        if not line.endswith(b"\n"):
            break
        digest.update(line)
        if count is not None:
            counts.update(count(json.loads(line)))
        done += 1
        whole += len(line)
    file.seek(whole)
    file.truncate()
    return digest, done


@contextmanager
def _executor(backend: Backend) -> Iterator[Executor]:
    """Waits for no one on failure: what isn't written is done again."""
    executor: Executor
    if backend.kind == "thread":
        executor = ThreadPoolExecutor(backend.workers)
    else:
        context = multiprocessing.get_context("spawn")
        executor = ProcessPoolExecutor(backend.workers, context, _end_with_parent)
    try:
        yield executor
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def _end_with_parent() -> None:
    """A worker whose parent was killed would wait for work forever."""

    def watch() -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _ray(work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    import pickle

    import ray.data

    context = ray.data.DataContext.get_current()
    context.execution_options.preserve_order = True
    rows = ray.data.from_items([{"item": pickle.dumps(item)} for item in items])

    def one(row: dict[str, Any]) -> dict[str, Any]:
        return {"result": pickle.dumps(work(pickle.loads(row["item"])))}

    for row in rows.map(one).iter_rows():
        yield pickle.loads(row["result"])


@lru_cache
def _adapter(type_: Any) -> TypeAdapter[Any]:
    return TypeAdapter(type_)
