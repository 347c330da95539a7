"""An event loop whose clock jumps to the next timer, so that hours of waiting take no time."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class VirtualLoop(asyncio.SelectorEventLoop):
    """`time()` begins at 0 and moves only when there is nothing left to run. No sockets, no
    threads: waiting for what no timer brings raises `RuntimeError` instead of hanging."""

    def __init__(self) -> None:
        super().__init__(_Jump(self))
        self.now = 0.0

    def time(self) -> float:
        return self.now


class _Jump(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop):
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("every task waits for something that no timer brings")
        self._loop.now += max(timeout, 0.0)
        return super().select(0)


def run(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work` on a virtual clock. Tasks that it leaves behind are cancelled."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(work)
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.close()
