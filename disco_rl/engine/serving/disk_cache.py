"""Replies by key in one SQLite file, shared by all processes of a machine."""

import asyncio
import contextlib
import logging
import sqlite3
import threading
import time
from pathlib import Path

from disco_rl.engine.serving.leases import Leases

_LOG = logging.getLogger(__name__)
_FLUSH_S = 0.5
_BATCH = 256  # writes that are flushed at once
_LOOK_S, _MOST_LOOK_S = 0.05, 1.0  # between looks at what another process is about to write


class DiskCache:
    """Texts by key; the oldest are dropped once the file holds more than `max_bytes`.

    Reads are done by the caller's thread (tens of microseconds), writes in batches by a thread of
    its own, so that no caller waits for another process. Write-ahead logging lets any number of
    processes read while one writes. `claim` and `settle` let one process make a call for all. A
    disk that refuses costs time, not results: it is logged once, and the cache is empty from then
    on.
    """

    def __init__(self, path: Path, max_bytes: int, *, setting: str = "worker.cache_dir"):
        self._path = path
        self._setting = setting  # to be named where the disk refuses
        self._max_bytes = max_bytes
        self._pending: dict[str, str] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closed = False
        self._reader: sqlite3.Connection | None = None
        self._writer: threading.Thread | None = None
        self._leases: Leases | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._leases = Leases(path.with_suffix(".leases"))
            self._reader = self._open()
            self._writer = threading.Thread(target=self._write, name="disk-cache", daemon=True)
            self._writer.start()
        except (OSError, sqlite3.Error) as error:
            self._give_up(error)

    def get(self, key: str) -> str | None:
        """The text of `key`, or None. Call it from one thread only."""
        pending = self._pending.get(key)
        if pending is not None or self._reader is None:
            return pending
        try:
            row = self._reader.execute("SELECT text FROM replies WHERE key = ?", (key,)).fetchone()
        except sqlite3.Error as error:
            self._give_up(error)
            return None
        return None if row is None else str(row[0])

    async def claim(self, key: str, patience_s: float) -> str | None:
        """The text of `key`; None where this process is to make it, and then to `settle`.

        While another process makes it, this one waits, at most `patience_s`.
        """
        pause, end = _LOOK_S, time.monotonic() + patience_s
        while self._leases is not None:
            mine = self._leases.take(key)
            known = self.get(key)  # looked for once it's taken: another may just have written it
            if known is not None and mine and key not in self._pending:
                self._leases.give(key)
            if known is not None or mine or time.monotonic() > end:
                return known
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _MOST_LOOK_S)
        return None

    def settle(self, key: str, text: str | None) -> None:
        """Keeps what `claim` left to this process, or None: whoever asks next makes it."""
        if text is not None and self._reader is not None:
            self.put(key, text)  # others go on once it's written
        elif self._leases is not None:
            self._leases.give(key)

    def put(self, key: str, text: str) -> None:
        if self._reader is None:
            return
        with self._lock:
            self._pending[key] = text
            full = len(self._pending) >= _BATCH
        if full:
            self._wake.set()

    def close(self) -> None:
        """Writes what is pending."""
        self._closed = True
        self._wake.set()
        if self._writer is not None:
            self._writer.join()
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        if self._leases is not None:
            self._leases.close()

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=30.0, check_same_thread=False)
        connection.isolation_level = None
        connection.execute("PRAGMA journal_mode = WAL")
        # After a power cut a cache may lack its last replies.
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute(
            "CREATE TABLE IF NOT EXISTS replies "
            "(id INTEGER PRIMARY KEY, key TEXT UNIQUE NOT NULL, text TEXT NOT NULL)"
        )
        return connection

    def _write(self) -> None:
        try:
            with contextlib.closing(self._open()) as connection:
                while not (self._closed and not self._pending):
                    self._wake.wait(_FLUSH_S)
                    self._wake.clear()
                    self._flush(connection)
        except sqlite3.Error as error:
            self._give_up(error)

    def _flush(self, connection: sqlite3.Connection) -> None:
        batch = list(self._pending.items())
        if not batch:
            return
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT OR REPLACE INTO replies (key, text) VALUES (?, ?)", batch)
        (pages,), (free,), (size,) = (
            connection.execute(f"PRAGMA {name}").fetchone()
            for name in ("page_count", "freelist_count", "page_size")
        )
        over = (pages - free) * size - self._max_bytes
        if over > 0:  # a tenth more than needed, so that it isn't done at every flush
            (count,) = connection.execute("SELECT COUNT(*) FROM replies").fetchone()
            drop = min(count, int(count * (over / ((pages - free) * size) + 0.1)) + 1)
            connection.execute(
                "DELETE FROM replies WHERE id IN (SELECT id FROM replies ORDER BY id LIMIT ?)",
                (drop,),
            )
        connection.execute("COMMIT")
        with self._lock:
            for key, text in batch:
                if self._pending.get(key) is text:
                    del self._pending[key]
                if self._leases is not None:
                    self._leases.give(key)

    def _give_up(self, error: Exception) -> None:
        _LOG.warning("no disk cache at %s (%s); set %s", self._path, error, self._setting)
        self._reader = None
        self._pending = {}
        if self._leases is not None:
            self._leases.close()
            self._leases = None
