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
    """Identical calls are made once: under way in this process or in another that has the same
    `disk`, remembered (`size` replies), or on disk."""

    def __init__(
        self,
        router: Router[Q, R],
        text: Text[R],
        size: int,
        disk: DiskCache | None = None,
        patience_s: float = 300.0,
    ):
        """`size` 0: every call is made. One that another process makes is waited for so long."""
        self.router = router
        self._text = text
        self._size = size
        self._memory: Lru[str] = Lru(size)
        self._disk = disk
        self._patience_s = patience_s
        self._flights: Flights[tuple[R, Receipt | None]] = Flights()

    async def ask(
        self, key: str, shard: str, tokens: int, request: Q, hold_s: float = 0.0
    ) -> tuple[R, Receipt | None]:
        """The reply to the call of that key, and what it took: None where it cost nothing.

        `shard` is the digest of the shard that the request begins with, of so many tokens, which
        its server keeps for `hold_s` more. Raises `ModelError`.
        """
        if not self._size:
            return await self.router.ask(shard, tokens, request, hold_s)
        known = self._memory.get(key)
        if known is not None:
            return self._text.load(known), None
        (reply, receipt), billed = await self._flights.join(
            key, lambda: self._answer(key, shard, tokens, request, hold_s)
        )
        return reply, receipt if billed else None

    async def close(self) -> None:
        await self.router.close()
        if self._disk:
            self._disk.close()

    async def _answer(
        self, key: str, shard: str, tokens: int, request: Q, hold_s: float
    ) -> tuple[R, Receipt | None]:
        """From disk, where another process may be about to put it, else by a call."""
        known = await self._disk.claim(key, self._patience_s) if self._disk else None
        if known is not None:
            self._memory.put(key, known)
            return self._text.load(known), None
        text = None
        try:
            reply, receipt = await self.router.ask(shard, tokens, request, hold_s)
            text = self._text.dump(reply)
        finally:
            if self._disk:
                self._disk.settle(key, text)
        if text is not None:
            self._memory.put(key, text)
        return reply, receipt
