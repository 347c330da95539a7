"""What an offline wandb run logged, read back from its file."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# LevelDB's log format after wandb's own seven bytes: blocks of 32 KB, in which a record is a
# checksum (4 bytes), a length (2) and a type (1) before its data, and may go on in the next block.
_BLOCK, _HEADER, _MAGIC = 32_768, 7, b":W&B"
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


def history(run: Path) -> dict[int, dict[str, Any]]:
    """Metrics by step of the run in folder `run` (wandb/offline-run-...).

    Raises `ValueError` for a folder without its file, or another format.
    """
    from wandb.proto.wandb_internal_pb2 import Record

    files = sorted(run.glob("run-*.wandb"))
    if len(files) != 1:
        raise ValueError(f"{run} holds {len(files)} files run-*.wandb; give one run's folder")
    steps: dict[int, dict[str, Any]] = {}
    for data in _records(files[0]):
        record = Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") != "history":
            continue
        row = {
            ".".join(item.nested_key) or item.key: json.loads(item.value_json)
            for item in record.history.item
        }
        step = int(row.get("_step", record.history.step.num))
        steps.setdefault(step, {}).update(row)
    return dict(sorted(steps.items()))


def _records(path: Path) -> Iterator[bytes]:
    content = path.read_bytes()
    if content[:4] != _MAGIC:
        raise ValueError(f"{path} doesn't begin as a wandb file does")
    at, parts = _HEADER, []
    while at + _HEADER <= len(content):
        left = _BLOCK - at % _BLOCK
        if left < _HEADER:
            at += left  # padding
            continue
        _, length, kind = struct.unpack_from("<IHB", content, at)
        if kind not in (_FULL, _FIRST, _MIDDLE, _LAST):
            return  # a run that was killed leaves zeros
        if at + _HEADER + length > len(content):
            return  # or half a record, as does one that is still being written
        parts.append(content[at + _HEADER : at + _HEADER + length])
        at += _HEADER + length
        if kind in (_FULL, _LAST):
            yield b"".join(parts)
            parts = []
