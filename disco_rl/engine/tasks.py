"""Fan-out with an owner: `asyncio.TaskGroup` is only there from Python 3.11."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


async def gather(work: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Results in order. When one raises, or on cancellation, the rest is cancelled and awaited."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in work]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
