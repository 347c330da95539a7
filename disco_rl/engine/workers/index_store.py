"""Indexes on disk, written whole or not at all, and a bounded cache of them in memory."""

import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

_LOG = logging.getLogger(__name__)
V = TypeVar("V")


def digest(*parts: str | bytes) -> str:
    """Hex digest (128 bits) of the parts, each kept apart by its length."""
    state = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()


def cache_dir(part: str) -> Path:
    """`$DISCO_CACHE/<part>`, else under `$XDG_CACHE_HOME`, else under `~/.cache`."""
    if root := os.environ.get("DISCO_CACHE"):
        return Path(root) / part
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "disco_rl" / part


class IndexStore:
    """Folders by key under `root`. Any number of processes may read and write the same keys."""

    def __init__(self, root: Path):
        self.root = root
        self._broken = False

    def path(self, key: str) -> Path | None:
        """The folder of `key`, complete, or None."""
        folder = self.root / key[:2] / key
        return folder if folder.is_dir() else None

    def write(self, key: str, fill: Callable[[Path], None]) -> None:
        """Lets `fill` write into a new folder, then names it `key` in one step.

        A disk that refuses costs time, not results: it is logged once, and the run goes on.
        """
        folder = self.root / key[:2] / key
        scratch = ""
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            scratch = tempfile.mkdtemp(prefix=f".{key}.", dir=folder.parent)
            fill(Path(scratch))
            os.chmod(scratch, 0o755)
            if not folder.is_dir():
                os.rename(scratch, folder)
        except OSError as error:
            if not folder.is_dir() and not self._broken:  # else another process was first
                self._broken = True
                _LOG.warning("can't keep indexes under %s (%s); set cache_dir", self.root, error)
        finally:
            if scratch:
                shutil.rmtree(scratch, ignore_errors=True)

    def drop(self, key: str) -> None:
        """Removes a folder that can't be read."""
        shutil.rmtree(self.root / key[:2] / key, ignore_errors=True)
