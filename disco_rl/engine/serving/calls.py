"""A Worker's calls: answered from memory where they can be, else by the endpoint of their shard."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from disco_rl.engine.lru import Lru
from disco_rl.engine.serving.disk_cache import DiskCache
from disco_rl.engine.serving.memo import Flights
from disco_rl.engine.serving.router import Receipt, Router

Q = TypeVar("Q")
R = TypeVar("R")


@dataclass(frozen=True)
class Text(Generic[R]):
    """A reply as text and back; `dump` gives None for one that isn't worth keeping."""

    dump: Callable[[R], str | None]
    load: Callable[[str], R]


class Calls(Generic[Q, R]):
    """Identical calls are made once: under way, remembered (`size` replies), or on disk."""

    def __init__(
        self, router: Router[Q, R], text: Text[R], size: int, disk: DiskCache | None = None
    ):
        """`size` 0: every call is made."""
        self.router = router
        self._text = text
        self._size = size
        self._memory: Lru[str] = Lru(size)
        self._disk = disk
        self._flights: Flights[tuple[R, Receipt]] = Flights()

    async def ask(self, key: str, shard: str, tokens: int, request: Q) -> tuple[R, Receipt | None]:
        """The reply to the call of that key, and what it took: None where it cost nothing.

        `shard` is the digest of the shard that the request begins with, of so many tokens. Raises
        `ModelError`.
        """
        if not self._size:
            return await self.router.ask(shard, tokens, request)
        known = self._recall(key)
        if known is not None:
            return self._text.load(known), None
        (reply, receipt), billed = await self._flights.join(
            key, lambda: self.router.ask(shard, tokens, request)
        )
        if not billed:
            return reply, None
        text = self._text.dump(reply)
        if text is not None:
            self._memory.put(key, text)
            if self._disk:
                self._disk.put(key, text)
        return reply, receipt

    async def close(self) -> None:
        await self.router.close()
        if self._disk:
            self._disk.close()

    def _recall(self, key: str) -> str | None:
        known = self._memory.get(key)
        if known is None and self._disk:
            known = self._disk.get(key)
            if known is not None:
                self._memory.put(key, known)
        return known
