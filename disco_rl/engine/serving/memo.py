"""Identical calls are answered once: in flight, from memory, or from a disk cache."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass
class _Flight(Generic[T]):
    task: "asyncio.Task[T]"
    waiting: int = 0
    billed: bool = False


class Flights(Generic[T]):
    """Calls under way by key. A call goes on as long as anyone waits for it."""

    def __init__(self) -> None:
        self._flights: dict[Hashable, _Flight[T]] = {}

    async def join(
        self, key: Hashable, make: Callable[[], Coroutine[Any, Any, T]]
    ) -> tuple[T, bool]:
        """The result of the one call of that key, and whether this caller is the one it's billed
        to. An error is raised for every caller."""
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = _Flight(asyncio.ensure_future(make()))
            flight.task.add_done_callback(partial(self._leave, key, flight))
        flight.waiting += 1
        try:
            result = await asyncio.shield(flight.task)
        except asyncio.CancelledError:
            if flight.waiting == 1 and not flight.task.done():
                self._leave(key, flight)  # whoever asks now begins anew
                flight.task.cancel()
                await asyncio.gather(flight.task, return_exceptions=True)
            raise
        finally:
            flight.waiting -= 1
        billed, flight.billed = not flight.billed, True
        return result, billed

    def _leave(self, key: Hashable, flight: _Flight[T], _: object = None) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]
