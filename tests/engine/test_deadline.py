"""One deadline for the whole trajectory, and nothing left running after it or a cancellation."""

import asyncio
import time

import pytest

from disco_rl.core.trajectory import StopReason
from disco_rl.engine.episode import run_episode
from disco_rl.engine.pool import WorkerPool
from disco_rl.engine.protocols import Scan
from tests.engine.scripted import (
    ACCEPT,
    CONTEXT,
    PLAN,
    AskedModel,
    config,
    kind_of,
    narrow,
    plan,
    reject,
    run,
    wide,
)
from tests.fakes import SubstringWorker


class Hanging:
    """A Worker that never replies, and counts whom it has been let go by."""

    def __init__(self):
        self.started = 0
        self.ended = 0

    async def scan(self, instruction, context, shard) -> Scan:
        self.started += 1
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # a clean-up that takes a turn of the loop
            self.ended += 1
        return Scan(())


def model(
    hang_at: str = "", review: str = ACCEPT, text: str = PLAN, pause: float = 0.0
) -> AskedModel:
    async def reply(prompt: str) -> str:
        kind = kind_of(prompt)
        await asyncio.sleep(pause)
        if kind == hang_at:
            await asyncio.Event().wait()
        return {"plan": text, "synthesize": "1815", "review": review}[kind]

    return AskedModel(reply)


def test_a_hanging_worker():
    worker = Hanging()
    text = plan(narrow("n1"), narrow("n2"), wide("w", "n1", "n2"))
    pool = WorkerPool(worker, max_concurrency=3)
    trajectory = run(run_episode("Q?", CONTEXT, model(text=text), pool, config(deadline_s=0.5)))
    assert (trajectory.stop, trajectory.answer) == (StopReason.DEADLINE, None)
    assert trajectory.error == "episode.deadline_s=0.5 passed"
    assert 0.5 <= trajectory.seconds < 20
    assert worker.started == worker.ended == 3
    assert trajectory.stages[0].plan is not None
    assert trajectory.workers.calls == 3
    assert trajectory.workers.cancelled == 2 * len(CONTEXT.shards)  # five waited for a turn


@pytest.mark.parametrize("kind", ["plan", "synthesize", "review"])
def test_a_hanging_driver(kind):
    pool = WorkerPool(SubstringWorker())
    trajectory = run(run_episode("Q?", CONTEXT, model(kind), pool, config(deadline_s=0.5)))
    assert trajectory.stop is StopReason.DEADLINE
    assert trajectory.answer == ("1815" if kind == "review" else None)
    assert len(trajectory.calls) == ["plan", "synthesize", "review"].index(kind)
    assert ("n1" in trajectory.stages[0].pool.outputs) == (kind != "plan")


def test_the_deadline_is_for_all_stages_together_not_for_each():
    # Every call is well within the deadline; the stages together are not.
    slow = model(review=reject("more"), pause=0.03)
    pool = WorkerPool(SubstringWorker())
    began = time.perf_counter()
    trajectory = run(
        run_episode("Q?", CONTEXT, slow, pool, config(deadline_s=1.0, max_stages=1000))
    )
    assert time.perf_counter() - began < 20
    assert trajectory.stop is StopReason.DEADLINE
    assert trajectory.answer == "1815"
    assert 2 <= len(trajectory.stages) <= 12  # at least 0.09 s each


def test_waiting_for_a_slot_counts_too():
    worker = Hanging()
    pool = WorkerPool(worker, max_concurrency=1)

    async def both():
        first = asyncio.ensure_future(
            run_episode("Q?", CONTEXT, model(), pool, config(deadline_s=600.0))
        )
        while not worker.started:
            await asyncio.sleep(0.005)
        second = await run_episode("Q?", CONTEXT, model(), pool, config(deadline_s=0.5))
        assert second.workers.calls == 0
        assert not first.done()
        first.cancel()
        await asyncio.wait([first], timeout=60)
        return second

    assert run(both()).stop is StopReason.DEADLINE


@pytest.mark.parametrize("where", ["plan", "synthesize", "review", "worker"])
def test_cancellation_is_passed_on_and_leaves_no_task(where):
    hanging = Hanging()
    asked = model(where)

    def reached() -> bool:
        return hanging.started > 0 or where in map(kind_of, asked.prompts)

    async def main():
        pool = WorkerPool(hanging if where == "worker" else SubstringWorker())
        task = asyncio.ensure_future(run_episode("Q?", CONTEXT, asked, pool, config()))
        while not reached():
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 10)
        assert hanging.started == hanging.ended
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())
    assert kind_of(asked.prompts[-1]) == ("plan" if where == "worker" else where)


def test_an_error_in_one_node_stops_the_others_at_once():
    class OneBroken(Hanging):
        async def scan(self, instruction, context, shard):
            if shard == 2:
                raise ZeroDivisionError("bug")
            return await super().scan(instruction, context, shard)

    worker = OneBroken()
    text = plan(narrow("n1", shards=[0, 1]), narrow("n2", shards=[2, 3]), wide("w", "n1", "n2"))
    trajectory = run(run_episode("Q?", CONTEXT, model(text=text), WorkerPool(worker), config()))
    assert (trajectory.stop, trajectory.error) == (StopReason.ERROR, "ZeroDivisionError: bug")
    assert worker.started == worker.ended
    assert trajectory.seconds < 15
