"""Which process of a machine makes a call, while others wait for its reply."""

import fcntl
from hashlib import blake2b
from pathlib import Path
from typing import IO

_FILES = 32  # the kernel searches a file's locks one by one


class Leases:
    """Keys that this process has taken, seen by all processes with the same folder.

    Locks of single bytes (POSIX): taking one costs two microseconds, and the kernel gives it back
    when its process ends, however it ends, so that none has to expire. A process never excludes
    itself, and closing one `Leases` of a folder gives back what another of the same process has
    taken. Where the file system has no locks, every process may take every key.
    """

    def __init__(self, folder: Path):
        """Raises `OSError` where the folder can't be written."""
        folder.mkdir(parents=True, exist_ok=True)
        self._files = [(folder / f"{i:02x}").open("ab") for i in range(_FILES)]

    def take(self, key: str) -> bool:
        """Whether `key` is this process's now; False while it's another's."""
        file, byte = self._place(key)
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
        except (BlockingIOError, PermissionError):
            return False
        except (OSError, ValueError):  # no locks here, or closed
            return True
        return True

    def give(self, key: str) -> None:
        """Gives `key` back, if this process has it."""
        file, byte = self._place(key)
        try:
            fcntl.lockf(file, fcntl.LOCK_UN, 1, byte)
        except (OSError, ValueError):
            return

    def close(self) -> None:
        """Gives everything back."""
        for file in self._files:
            file.close()

    def _place(self, key: str) -> tuple[IO[bytes], int]:
        number = int.from_bytes(blake2b(key.encode(), digest_size=8).digest(), "big")
        return self._files[number % _FILES], number >> 8
