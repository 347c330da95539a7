"""Verdicts by content: in memory, and on disk for other processes and a restarted run."""

import platform
from collections import OrderedDict
from pathlib import Path

from disco_rl.engine.serving.disk_cache import DiskCache
from disco_rl.rewards.judge import Verdict


class VerdictMemory:
    """At most `size` verdicts in memory, the least lately used dropped, and `megabytes` on disk.

    `folder` None keeps them in memory only. The file is one a machine, since SQLite's write-ahead
    log can't be shared over a network; it is opened when first asked. A disk that refuses costs
    questions, not verdicts (`DiskCache`).
    """

    def __init__(self, size: int, folder: str | Path | None, megabytes: int):
        self._size = size
        self._folder = Path(folder).expanduser() if folder and megabytes and size else None
        self._bytes = megabytes * 2**20
        self._known: OrderedDict[str, Verdict] = OrderedDict()
        self._disk: DiskCache | None = None

    def get(self, key: str) -> Verdict | None:
        if key in self._known:
            self._known.move_to_end(key)
            return self._known[key]
        disk = self._open()
        text = disk.get(key) if disk else None
        if text not in {verdict.value for verdict in Verdict}:
            return None
        self._keep(key, Verdict(text))
        return self._known.get(key)

    def put(self, key: str, verdict: Verdict) -> None:
        self._keep(key, verdict)
        if disk := self._open():
            disk.put(key, verdict.value)

    def close(self) -> None:
        """Writes what is pending; used again, it opens the file again."""
        if self._disk is not None:
            self._disk.close()
            self._disk = None

    def _keep(self, key: str, verdict: Verdict) -> None:
        self._known[key] = verdict
        self._known.move_to_end(key)
        while len(self._known) > self._size:
            self._known.popitem(last=False)

    def _open(self) -> DiskCache | None:
        if self._folder is None:
            return None
        if self._disk is None:
            path = self._folder / f"{platform.node() or 'machine'}.sqlite"
            self._disk = DiskCache(path, self._bytes, setting="judge.cache_dir")
        return self._disk
