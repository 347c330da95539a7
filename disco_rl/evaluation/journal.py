"""Replies of an item under way, on disk, so that a killed run never pays for one twice."""

import hashlib
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any


class Journal:
    """Replies by request, in one JSONL file an item; `path` None keeps nothing.

    A request that is made several times (sampling again, on purpose) is told apart by how often it
    was made before within this item. The file is appended to as each reply arrives, and a line cut
    off by a kill is ignored.
    """

    def __init__(self, path: Path | None):
        self._path = path
        self._made: Counter[str] = Counter()
        self._kept: dict[str, Any] = {}
        self.replayed = 0
        if path is not None and path.is_file():
            drop_cut_line(path)
            for line in path.read_bytes().splitlines():
                entry = json.loads(line)
                self._kept[entry["key"]] = entry["reply"]

    def key(self, *request: Any) -> str:
        """The key of this request's next reply. Call it once, before the reply is looked up."""
        text = json.dumps(request, sort_keys=True, ensure_ascii=True)
        digest = hashlib.sha256(text.encode()).hexdigest()
        self._made[digest] += 1
        return f"{digest}/{self._made[digest]}"

    def get(self, key: str) -> Any | None:
        """The reply that was already paid for, or None."""
        reply = self._kept.get(key)
        self.replayed += reply is not None
        return reply

    def keep(self, key: str, reply: Any) -> None:
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"key": key, "reply": reply}) + "\n")

    def drop(self) -> None:
        """The item's result is safe, so its replies aren't needed any more."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def drop_cut_line(path: Path) -> None:
    """What a kill cut off at the end goes, lest the next line be glued to it. What stands before
    it isn't written again: a second kill would lose it."""
    whole, newline, cut = path.read_bytes().rpartition(b"\n")
    if cut:
        os.truncate(path, len(whole) + len(newline))
