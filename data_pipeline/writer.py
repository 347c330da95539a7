"""Writes sample rows and context stores: the same input gives the same bytes."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from disco_rl.core.sample import Sample
from disco_rl.core.shards import Shard
from disco_rl.data.store import (
    ARROW_FILE,
    FORMAT_VERSION,
    INFO_FILE,
    MANIFEST_FILE,
    StoreInfo,
)

_SHARD = pa.struct(
    [
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("n_tokens", pa.int32()),
        ("byte_start", pa.int64()),
        ("byte_end", pa.int64()),
    ]
)
_STORE = pa.schema(
    [("context_id", pa.string()), ("text", pa.large_string()), ("shards", pa.list_(_SHARD))]
)
_HOP = pa.struct(
    [
        ("question", pa.string()),
        ("answer", pa.string()),
        ("aliases", pa.list_(pa.string())),
        ("shard_ids", pa.list_(pa.int32())),
        ("span", pa.list_(pa.int64())),
    ]
)
_ROWS = pa.schema(
    [
        ("data_source", pa.string()),
        ("prompt", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
        ("ability", pa.string()),
        (
            "reward_model",
            pa.struct([("style", pa.string()), ("ground_truth", pa.list_(pa.string()))]),
        ),
        ("agent_name", pa.string()),
        (
            "extra_info",
            pa.struct(
                [
                    ("index", pa.int64()),
                    ("question", pa.string()),
                    ("context_id", pa.string()),
                    ("n_shards", pa.int32()),
                    ("n_tokens", pa.int64()),
                    ("hops", pa.list_(_HOP)),
                ]
            ),
        ),
    ]
)
_BATCH_BYTES = 16 * 2**20

StoreItem = tuple[str, str, Sequence[Shard]]
"""Context id, text, shards."""


def write_rows(path: Path, samples: Iterable[Sample]) -> int:
    """Writes the Parquet file of rows; returns how many there are."""
    rows = [sample.to_row() for sample in samples]
    pq.write_table(pa.Table.from_pylist(rows, schema=_ROWS), path, compression="zstd")
    return len(rows)


def write_store(path: Path, items: Iterable[StoreItem], info: StoreInfo) -> int:
    """Writes a context store to the new folder `path`; returns how many contexts there are.

    It appears under its name only when complete. Raises `ValueError` for a duplicate id, or shards
    that don't rebuild their text.
    """
    with new_folder(path) as folder:
        seen: set[str] = set()
        features = _write_info(folder, info)
        schema = _STORE.with_metadata({"huggingface": json.dumps({"info": {"features": features}})})
        file = folder / ARROW_FILE
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, schema) as stream:
            for rows in _batches(items, seen):
                stream.write_batch(pa.RecordBatch.from_pylist(rows, schema=schema))
        digest = sha256(file)
        state: dict[str, Any] = {
            "_data_files": [{"filename": ARROW_FILE}],
            "_fingerprint": digest[:16],
            "_format_columns": None,
            "_format_kwargs": {},
            "_format_type": None,
            "_output_all_columns": False,
            "_split": None,
        }
        write_json(folder / "state.json", state)
        write_json(
            folder / MANIFEST_FILE,
            {"version": FORMAT_VERSION, "n_contexts": len(seen), "sha256": digest},
        )
    return len(seen)


def _write_info(folder: Path, info: StoreInfo) -> Any:
    from datasets import DatasetInfo, Features

    features = Features.from_arrow_schema(_STORE)
    about = {
        "version": FORMAT_VERSION,
        "tokenizer": info.tokenizer,
        "shard_size": info.shard_size,
    }
    DatasetInfo(description=json.dumps(about), features=features).write_to_directory(str(folder))
    return json.loads((folder / INFO_FILE).read_text(encoding="utf-8"))["features"]


def _batches(items: Iterable[StoreItem], seen: set[str]) -> Iterator[list[dict[str, Any]]]:
    rows: list[dict[str, Any]] = []
    size = 0
    for context_id, text, shards in items:
        if context_id in seen:
            raise ValueError(f"two contexts have the id {context_id!r}; ids must be unique")
        seen.add(context_id)
        rows.append({"context_id": context_id, "text": text, "shards": _places(text, shards)})
        size += len(text)
        if size >= _BATCH_BYTES:
            yield rows
            rows, size = [], 0
    if rows:
        yield rows


def _places(text: str, shards: Sequence[Shard]) -> list[dict[str, int]]:
    places, at, byte_at = [], 0, 0
    for shard in shards:
        if shard.start != at:
            raise ValueError(f"shard {shard.index} starts at {shard.start}, not at {at}")
        byte_end = byte_at + len(text[shard.start : shard.end].encode("utf-8"))
        places.append(
            {
                "start": shard.start,
                "end": shard.end,
                "n_tokens": shard.n_tokens,
                "byte_start": byte_at,
                "byte_end": byte_end,
            }
        )
        at, byte_at = shard.end, byte_end
    if at != len(text):
        raise ValueError(f"the shards end at character {at}, the text at {len(text)}")
    return places


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A temporary folder beside `path` that takes its name on success and vanishes on failure.

    Raises `ValueError` when `path` exists already and isn't an empty folder.
    """
    path = Path(path)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ValueError(f"{path} exists already; remove it, or choose another folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        yield folder
        folder.chmod(0o755)  # mkdtemp makes it private
        os.replace(folder, path)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_jsonl(path: Path, values: Iterable[Mapping[str, Any]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for value in values:
            file.write(json.dumps(value, ensure_ascii=False) + "\n")


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()
