"""The fan-out: results in order, and nobody left running when one fails or all are cancelled."""

import asyncio

import pytest

from disco_rl.engine.tasks import gather, within


def alone() -> bool:
    return asyncio.all_tasks() == {asyncio.current_task()}


def test_results_come_in_order_however_the_work_finishes():
    async def value(n: int) -> int:
        await asyncio.sleep(0.001 * (5 - n))
        return n

    async def main():
        assert await gather([value(n) for n in range(5)]) == [0, 1, 2, 3, 4]
        assert await gather([]) == []
        assert alone()

    asyncio.run(main())


def test_one_failure_cancels_and_awaits_the_rest():
    ended = []

    async def slow(n: int) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)  # a clean-up that takes a turn of the loop
            ended.append(n)

    async def fails() -> None:
        await asyncio.sleep(0)
        raise KeyError("first")

    async def main():
        with pytest.raises(KeyError, match="first"):
            await gather([slow(0), fails(), slow(2), fails()])
        assert sorted(ended) == [0, 2]
        assert alone()

    asyncio.run(main())


def test_cancellation_reaches_the_work_and_is_passed_on():
    ended = []

    async def slow(n: int) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            ended.append(n)

    async def main():
        outer = asyncio.ensure_future(gather([slow(0), slow(1)]))
        await asyncio.sleep(0.01)
        outer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await outer
        assert ended == [0, 1]
        assert alone()

    asyncio.run(main())


def test_within_a_time_and_not_beyond_it():
    ended = []

    async def work(seconds: float) -> str:
        try:
            await asyncio.sleep(seconds)
            return "done"
        finally:
            await asyncio.sleep(0)
            ended.append(seconds)

    async def main():
        assert await within(5.0, work(0.01)) == "done"
        with pytest.raises(asyncio.TimeoutError):
            await within(0.05, work(60))
        assert ended == [0.01, 60] and alone()
        began = asyncio.get_running_loop().time()
        waited = iter([0.0, 0.3, 0.3])  # of which so much isn't counted
        with pytest.raises(asyncio.TimeoutError):
            await within(0.05, work(60), uncounted=lambda: next(waited))
        assert asyncio.get_running_loop().time() - began >= 0.34

    asyncio.run(main())
