"""One endpoint's slots, handed out so that it reads each shard once."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass


class MovedError(Exception):
    """The endpoint was taken out of service while a call waited for its turn there."""


@dataclass
class Turn:
    """A slot held by one call. `read` is set by the holder once the server has read the shard."""

    first: bool
    read: bool = False


class Lane:
    """At most `slots` calls at once, and of a shard that isn't read yet one, ahead of the rest.

    Calls on shards that are read go before those that would read another, so that what a full
    cache evicts is no longer waited for, and at most `reads` shards are read at once: a shard that
    waits here gathers calls, one that waits in the server doesn't. `kv_tokens` bounds how many
    tokens of shards count as read, those forgotten first that needn't be kept the longest (None:
    no bound).
    """

    def __init__(self, slots: int, kv_tokens: int | None = None, reads: int = 10**9):
        self.kv_tokens = kv_tokens
        self._free = slots
        self._reads = reads
        self._queues: dict[object, deque[asyncio.Future[bool]]] = {}
        self._ready: OrderedDict[object, None] = OrderedDict()  # read, and waited for
        self._cold: OrderedDict[object, None] = OrderedDict()  # waited for, and nobody reads it
        self._reading: set[object] = set()
        self._read: dict[object, tuple[int, float]] = {}  # tokens, and until when it's kept
        self._read_tokens = 0

    @property
    def waiting(self) -> int:
        return sum(len(queue) for queue in self._queues.values())

    @asynccontextmanager
    async def turn(
        self, shard: str | None, tokens: int, hold_s: float = 0.0
    ) -> AsyncIterator[Turn]:
        """A slot for a call on `shard` of so many tokens; None: one that needn't be read first.

        The server keeps the shard for `hold_s` more than one that isn't held. Raises `MovedError`
        where the lane is cleared while the call waits.
        """
        turn = Turn(first=await self._wait(object() if shard is None else shard))
        try:
            yield turn
        finally:
            self._free += 1
            if shard is not None:
                self._done(shard, tokens, hold_s, turn)
            self._hand_out()

    def clear(self, *, forget: bool) -> None:
        """Sends the waiting calls elsewhere; `forget` that anything was read."""
        for queue in self._queues.values():
            for call in queue:
                if not call.done():
                    call.set_exception(MovedError())
        self._queues.clear()
        self._ready.clear()
        self._cold.clear()
        if forget:
            self._read.clear()
            self._read_tokens = 0

    async def _wait(self, shard: object) -> bool:
        """Whether the call is the one that reads the shard."""
        call: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(shard, deque()).append(call)
        self._file(shard)
        self._hand_out()
        try:
            return await call
        except asyncio.CancelledError:
            if call.done() and not call.cancelled() and call.exception() is None:
                self._free += 1  # it was its turn in the same moment
                if call.result():
                    self._reading.discard(shard)
                self._file(shard)
                self._hand_out()
            raise

    def _file(self, shard: object) -> None:
        """Puts a waited-for shard where it belongs."""
        if shard not in self._queues or shard in self._reading:
            return
        if shard in self._read or not isinstance(shard, str):
            self._cold.pop(shard, None)
            self._ready.setdefault(shard)
        else:
            self._ready.pop(shard, None)
            self._cold.setdefault(shard)

    def _hand_out(self) -> None:
        while self._free > 0:
            first = not self._ready
            if first and (not self._cold or len(self._reading) >= self._reads):
                return
            shard = next(iter(self._cold if first else self._ready))
            queue = self._queues[shard]
            call = queue.popleft()
            if not queue:
                del self._queues[shard]
                self._ready.pop(shard, None)
                self._cold.pop(shard, None)
            if call.done():  # cancelled while it waited
                continue
            if first:
                self._cold.pop(shard, None)
                self._reading.add(shard)
            self._free -= 1
            call.set_result(first)

    def _done(self, shard: str, tokens: int, hold_s: float, turn: Turn) -> None:
        if turn.first:
            self._reading.discard(shard)
        if turn.read:
            until = asyncio.get_running_loop().time() + hold_s
            size, held = self._read.pop(shard, (0, until))
            self._read_tokens += tokens - size
            self._read[shard] = tokens, max(until, held)
            while self.kv_tokens and self._read_tokens > self.kv_tokens and len(self._read) > 1:
                lost = min(self._read, key=lambda each: self._read[each][1])
                self._read_tokens -= self._read.pop(lost)[0]
                self._file(lost)
        self._file(shard)
