"""The context store: contexts on disk, memory-mapped, so that a shard is read by itself.

A Hugging Face `datasets` folder (`datasets.load_from_disk` opens it too). Beside the columns of
the design, each shard has its place in UTF-8 bytes, so a read slices the mapped file.
"""

import difflib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from disco_rl.core.shards import Shard

if TYPE_CHECKING:
    import pyarrow as pa

ARROW_FILE = "data-00000-of-00001.arrow"
INFO_FILE = "dataset_info.json"
MANIFEST_FILE = "manifest.json"
COLUMNS = ("context_id", "text", "shards")
SHARD_FIELDS = ("start", "end", "n_tokens", "byte_start", "byte_end")
FORMAT_VERSION = 1


class StoreError(ValueError):
    """A context store that is missing, incomplete, foreign, or cut for other settings."""


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """What the shards were counted with: `tokenizer` by name, `shard_size` in its tokens."""

    tokenizer: str
    shard_size: int


class StoredContext:
    """A `Context` whose text stays in the memory-mapped file until a shard is read."""

    def __init__(
        self, id: str, shards: tuple[Shard, ...], places: list[tuple[int, int]], text: Any
    ):
        self._id = id
        self._shards = shards
        self._places = places  # of each shard, in bytes of `text`
        self._text = text  # the UTF-8 bytes of this context: a slice of the map, not a copy

    @property
    def id(self) -> str:
        return self._id

    @property
    def shards(self) -> tuple[Shard, ...]:
        return self._shards

    def read(self, index: int) -> str:
        """The text of shard `index`; copies nothing else. Raises `IndexError` for no such shard."""
        if not 0 <= index < len(self._shards):
            raise IndexError(f"context {self._id!r} has {len(self._shards)} shards, not {index}")
        start, end = self._places[index]
        return self._text.slice(start, end - start).to_pybytes().decode("utf-8")

    def text(self) -> str:
        """The whole text, copied."""
        return self._text.to_pybytes().decode("utf-8")


class ContextStore:
    """A store opened for reading; it pickles as its path, so processes can share it.

    `tokenizer` and `shard_size`, where given, must be the ones that the store was built with.
    Raises `StoreError`, which names the file or field and the next move.
    """

    def __init__(
        self, path: str | Path, *, tokenizer: str | None = None, shard_size: int | None = None
    ):
        self.path = Path(path)
        self.info = _read_info(self.path)
        for name, wanted in (("tokenizer", tokenizer), ("shard_size", shard_size)):
            found = getattr(self.info, name)
            if wanted is not None and wanted != found:
                raise StoreError(
                    f"{self.path / INFO_FILE}: {name} is {found!r}, but {wanted!r} was asked for; "
                    f"build the store anew with {name}={wanted}, or ask for {found!r}"
                )
        self._batches = _open(self.path / ARROW_FILE)
        self._rows: dict[str, tuple[int, int]] = {}
        for at, batch in enumerate(self._batches):
            for row, context_id in enumerate(batch.column("context_id").to_pylist()):
                self._rows[context_id] = (at, row)

    def __reduce__(self) -> tuple[type["ContextStore"], tuple[Path]]:
        return (ContextStore, (self.path,))

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, context_id: object) -> bool:
        return context_id in self._rows

    def ids(self) -> list[str]:
        """Context ids in file order."""
        return list(self._rows)

    def get(self, context_id: str) -> StoredContext:
        """The context by id. Raises `StoreError` (with the nearest id) when it isn't there."""
        if context_id not in self._rows:
            near = difflib.get_close_matches(context_id, self._rows, n=1, cutoff=0.0)
            hint = f"; the nearest id is {near[0]!r}" if near else ""
            raise StoreError(
                f"{self.path}: no context {context_id!r} among {len(self)}{hint}. "
                "Rows and store must come from the same build"
            )
        at, row = self._rows[context_id]
        batch = self._batches[at]
        shards, places = [], []
        for index, item in enumerate(batch.column("shards")[row].as_py()):
            shards.append(Shard(index, item["start"], item["end"], item["n_tokens"]))
            places.append((item["byte_start"], item["byte_end"]))
        text = _bytes_of(batch.column("text"), row)
        return StoredContext(context_id, tuple(shards), places, text)


def _bytes_of(column: Any, row: int) -> "pa.Buffer":
    """The bytes of one large_string value, as a slice of the column's data buffer."""
    _, offsets, data = column.buffers()
    ends = memoryview(offsets).cast("B").cast("q")  # large_string offsets are 64-bit
    start, end = ends[column.offset + row], ends[column.offset + row + 1]
    return data.slice(start, end - start)


def _read_info(path: Path) -> StoreInfo:
    build = "build it with `python -m data_pipeline world out=FOLDER`"
    if not path.is_dir():
        raise StoreError(f"{path}: no such context store; {build}, or correct the path")
    if not (path / MANIFEST_FILE).is_file():
        raise StoreError(
            f"{path}: {MANIFEST_FILE} is missing, so it isn't complete; remove it and {build}"
        )
    file = path / INFO_FILE
    try:
        stored = json.loads(json.loads(file.read_text(encoding="utf-8"))["description"])
        version, info = stored["version"], StoreInfo(stored["tokenizer"], int(stored["shard_size"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"{file}: tokenizer and shard size can't be read ({error!r}); remove {path} and {build}"
        ) from error
    if version != FORMAT_VERSION:
        raise StoreError(
            f"{file}: format version {version}, but this program reads {FORMAT_VERSION}; {build}"
        )
    return info


def _open(file: Path) -> list["pa.RecordBatch"]:
    import pyarrow as pa

    try:
        table = pa.ipc.open_stream(pa.memory_map(str(file), "r")).read_all()
    except (OSError, pa.ArrowInvalid) as error:
        raise StoreError(
            f"{file}: not readable as Arrow ({error}); build the store anew"
        ) from error
    for name in COLUMNS:
        if name not in table.column_names:
            raise StoreError(
                f"{file}: column {name!r} is missing (there are {table.column_names}); "
                "build the store anew"
            )
    if table.schema.field("text").type != pa.large_string():
        raise StoreError(f"{file}: column 'text' must be large_string; build the store anew")
    known = {field.name for field in table.schema.field("shards").type.value_type}
    for name in SHARD_FIELDS:
        if name not in known:
            raise StoreError(f"{file}: field 'shards.{name}' is missing; build the store anew")
    return table.to_batches()
