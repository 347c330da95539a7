"""Concurrency shared fairly: each item's calls take turns with those of the others."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FairGate:
    """At most `limit` calls at once; free places go round the owners, not to the longest queue.

    With one first-in-first-out queue an item that sends 256 shards at once would hold up every
    item behind it.
    """

    def __init__(self, limit: int):
        if limit < 1:
            raise ValueError(f"max_calls must be at least 1, not {limit}")
        self._free = limit
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def turn(self, owner: str) -> AsyncIterator[None]:
        if self._free and not self._waiting:
            self._free -= 1
        else:
            ticket = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(owner, deque()).append(ticket)
            try:
                await ticket
            except asyncio.CancelledError:
                if ticket.done() and not ticket.cancelled():  # granted in the same moment
                    self._release()
                raise
        try:
            yield
        finally:
            self._release()

    def _release(self) -> None:
        while self._waiting:
            owner, queue = next(iter(self._waiting.items()))
            del self._waiting[owner]
            ticket = queue.popleft()
            if queue:
                self._waiting[owner] = queue  # to the end of the round
            if not ticket.done():
                ticket.set_result(None)
                return
        self._free += 1
