"""Lets question groups in while their shards fit the servers' KV caches."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass
class _Group:
    tokens: int
    members: int = 0
    overtaken: int = 0
    waiting: list["asyncio.Future[None]"] = field(default_factory=list)


class Admission:
    """Groups of trajectories over the same shards, at most `tokens` of them at once.

    A group enters whole and leaves with its last member. Groups enter in order of arrival; one
    that doesn't fit may be overtaken by `patience` smaller ones, then it is waited for. One larger
    than everything enters alone.
    """

    def __init__(self, tokens: int | None, patience: int = 16):
        """`tokens` None: no bound."""
        self.capacity = tokens
        self._patience = patience
        self._inside: dict[str, _Group] = {}
        self._queue: OrderedDict[str, _Group] = OrderedDict()
        self._used = 0

    @property
    def inside(self) -> int:
        """Tokens of the groups that are in."""
        return self._used

    @asynccontextmanager
    async def admit(self, group: str, tokens: int) -> AsyncIterator[None]:
        """Holds the place of one member of `group`, whose shards have so many tokens together."""
        if self.capacity is None:
            yield
            return
        entry = await self._enter(group, tokens)
        try:
            yield
        finally:
            entry.members -= 1
            if not entry.members:
                del self._inside[group]
                self._used -= entry.tokens
                self._let_in()

    async def _enter(self, group: str, tokens: int) -> _Group:
        entry = self._inside.get(group)
        if entry is None:
            entry = self._queue.setdefault(group, _Group(tokens))
            place = asyncio.get_running_loop().create_future()
            entry.waiting.append(place)
            entry.members += 1
            self._let_in()
            try:
                await place
            except asyncio.CancelledError:
                self._leave(group, entry, place)
                raise
        else:
            entry.members += 1
        return entry

    def _leave(self, group: str, entry: _Group, place: "asyncio.Future[None]") -> None:
        entry.members -= 1
        if place in entry.waiting:
            entry.waiting.remove(place)
        if entry.members:
            return
        if self._inside.get(group) is entry:  # let in at the moment of the cancellation
            del self._inside[group]
            self._used -= entry.tokens
        else:
            del self._queue[group]
        self._let_in()

    def _let_in(self) -> None:
        assert self.capacity is not None
        passed: list[_Group] = []
        for group, entry in list(self._queue.items()):
            if self._inside and self._used + entry.tokens > self.capacity:
                if entry.overtaken >= self._patience:
                    return
                passed.append(entry)
                continue
            del self._queue[group]
            self._inside[group] = entry
            self._used += entry.tokens
            for earlier in passed:
                earlier.overtaken += 1
            for place in entry.waiting:
                if not place.done():
                    place.set_result(None)
            entry.waiting.clear()
