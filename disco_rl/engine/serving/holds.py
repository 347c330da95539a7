"""Which question groups' shards the servers are asked to keep while the Drivers think."""

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class _Group:
    tokens: int
    members: int = 0


class Holds:
    """Groups over the same shards, at most `tokens` of them held at once, first come first held.

    Nobody waits: the calls of a group that isn't held are served like all others, and share reads
    with whoever waits for the same shard. A group that doesn't fit lets smaller ones pass. A held
    one leaves `hold_s` after its last member, when servers have stopped keeping its shards.
    """

    def __init__(self, tokens: int, hold_s: float):
        self._free = tokens
        self._hold_s = hold_s
        self._held: set[str] = set()
        self._groups: OrderedDict[str, _Group] = OrderedDict()

    def __contains__(self, group: str) -> bool:
        return group in self._held

    @contextmanager
    def member(self, group: str, tokens: int) -> Iterator[None]:
        """One member of `group`, whose shards have so many tokens together."""
        entry = self._groups.setdefault(group, _Group(tokens))
        entry.members += 1
        self._hold()
        try:
            yield
        finally:
            entry.members -= 1
            if not entry.members:
                del self._groups[group]
                if group in self._held:
                    self._held.discard(group)
                    loop = asyncio.get_running_loop()
                    loop.call_later(self._hold_s, self._release, entry.tokens)

    def _release(self, tokens: int) -> None:
        self._free += tokens
        self._hold()

    def _hold(self) -> None:
        for group, entry in self._groups.items():
            if group not in self._held and entry.tokens <= self._free:
                self._held.add(group)
                self._free -= entry.tokens
