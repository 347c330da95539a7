"""Fan-out with an owner: `asyncio.TaskGroup` is only there from Python 3.11."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


async def gather(work: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Results in order. When one raises, or on cancellation, the rest is cancelled and awaited."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in work]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        left = [task for task in tasks if not task.done()]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


async def within(
    seconds: float, work: Coroutine[Any, Any, T], *, uncounted: Callable[[], float] = lambda: 0.0
) -> T:
    """The result of `work`, which is cancelled and awaited once `seconds` have passed.

    What `uncounted` grows by meanwhile is added to them. Raises `asyncio.TimeoutError`.
    """
    end, before = time.monotonic() + seconds, uncounted()
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            left = end - time.monotonic() + uncounted() - before
            if left <= 0:
                raise asyncio.TimeoutError
            await asyncio.wait({task}, timeout=left)
        return task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
