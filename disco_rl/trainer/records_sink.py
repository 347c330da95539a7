"""Trajectory records on disk: one JSONL file a step and split."""

import contextlib
import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class RecordsSink:
    """Appends records to `<folder>/<split>/<step>.jsonl`.

    One write a record, under a lock, so that lines of several processes don't mix: those of several
    nodes neither, where their shared folder's NFS has locks. Where there are none, it goes without.
    """

    def __init__(self, folder: str | Path):
        self._folder = Path(folder)

    def path(self, split: str, step: int) -> Path:
        return self._folder / split / f"{step:06d}.jsonl"

    def write(self, split: str, step: int, record: Mapping[str, Any]) -> None:
        """Raises `OSError` where the disk refuses, and `TypeError` for what isn't JSON."""
        line = (json.dumps(record, ensure_ascii=False) + "\n").encode()
        path = self.path(split, step)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            with contextlib.suppress(OSError):
                fcntl.lockf(handle, fcntl.LOCK_EX)  # NFS appends where it last saw the end
            view = memoryview(line)
            while view:
                view = view[os.write(handle, view) :]
        finally:
            os.close(handle)

    def set_aside(self, split: str, after: int) -> list[Path]:
        """Renames the files of steps over `after`, which a resumed run writes again.

        They stay beside the new ones as `<step>.jsonl.old`, the newest attempt only. Returns the
        new names.
        """
        moved = []
        for path in sorted((self._folder / split).glob("*.jsonl")):
            if path.stem.isdigit() and int(path.stem) > after:
                moved.append(path.replace(path.with_name(path.name + ".old")))
        return moved
