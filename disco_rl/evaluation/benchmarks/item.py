"""One question of a benchmark, and rows from wherever they are."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from disco_rl.core.sample import Sample
from disco_rl.evaluation.methods.protocol import Document, Task
from disco_rl.evaluation.scores import Gold

LETTER_STYLE = 'Answer in this form and no other: "The correct answer is (X)", X being the letter.'
SHORT_STYLE = "Answer with the answer only, in as few words as possible."


@dataclass(frozen=True)
class Item:
    """A question with its gold answers. `group` is the table's column: a subset or a length.

    `sample` is there for our own data, whose gold evidence is known.
    """

    id: str
    group: str
    scorer: str
    task: Task
    gold: Gold
    document: Document
    sample: Sample | None = None


def rows(
    source: str, *, split: str | None = None, config: str | None = None
) -> Iterator[dict[str, Any]]:
    """Rows of a local `.jsonl`, `.json` (a list, or an object whose `data` is one) or `.parquet`
    file, or of a data set on the Hub, of which `split` is read.

    Raises `ValueError` naming the source and what is wrong with it.
    """
    path = Path(source).expanduser()
    if path.suffix in (".jsonl", ".json", ".parquet"):
        if not path.is_file():
            raise ValueError(f"{path}: no such file; correct benchmark.source")
        yield from _local(path)
        return
    from datasets import load_dataset

    try:
        loaded = load_dataset(source, config, split=split)
    except Exception as error:  # the library and the network raise anything
        raise ValueError(
            f"benchmark.source {source!r}: no file, and not to be had from the Hub "
            f"({type(error).__name__}: {error}); download it and give the file's path"
        ) from error
    yield from (dict(row) for row in loaded)


def _local(path: Path) -> Iterator[dict[str, Any]]:
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        for batch in pq.ParquetFile(path).iter_batches(batch_size=16):
            yield from batch.to_pylist()
    elif path.suffix == ".json":
        loaded = json.loads(path.read_text(encoding="utf-8"))
        found = loaded.get("data") if isinstance(loaded, Mapping) else loaded
        if not isinstance(found, list):
            raise ValueError(f"{path}: neither a list of rows nor an object with `data`")
        yield from found
    else:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                try:
                    row = json.loads(line)
                except ValueError as error:
                    raise ValueError(f"{path}, line {number}: not JSON ({error})") from error
                yield row


def field(row: Mapping[str, Any], name: str, source: str) -> Any:
    """`row[name]`. Raises `ValueError` that lists the fields there are."""
    if name not in row:
        raise ValueError(f"{source}: a row has no field {name!r}; it has {sorted(row)}")
    return row[name]


def digest(*parts: str) -> str:
    """Of what makes a question itself, so that two questions never share an id."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]


def held(id: str, text: str) -> Document:
    """A document whose text is at hand."""
    return Document(id, lambda: text)
