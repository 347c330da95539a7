"""Nodes run as soon as their parents are done, and no later."""

import asyncio
import json

from disco_rl.core.trajectory import StopReason
from disco_rl.engine.episode import run_episode
from disco_rl.engine.pool import WorkerPool
from disco_rl.engine.protocols import Quote, Scan
from tests.engine.scripted import (
    ACCEPT,
    CONTEXT,
    AskedModel,
    config,
    kind_of,
    narrow,
    plan,
    run,
    wide,
)


def episode(text: str, scan, synthesize, **changes):
    """Runs one stage; `scan` and `synthesize` are given the node's id and may wait."""

    class Worker:
        async def scan(self, instruction, context, shard):
            await scan(instruction.split()[-1].strip("."))
            return Scan((Quote(instruction, None),))

    async def reply(prompt: str) -> str:
        kind = kind_of(prompt)
        if kind != "synthesize":
            return text if kind == "plan" else ACCEPT
        task = prompt.split("Task: ")[1].split("\n")[0]
        node = json.loads(text)["nodes"][-1]["id"] if task == "Q?" else task[3:-1]
        await synthesize(node)
        return f"output of {node}"

    model = AskedModel(reply)
    pool = WorkerPool(Worker(), max_concurrency=changes.pop("max_concurrency", 64))
    trajectory = run(run_episode("Q?", CONTEXT, model, pool, config(**changes)))
    assert trajectory.stop is StopReason.ACCEPTED, trajectory.error
    return trajectory, model


async def at_once(node: str) -> None:
    pass


def test_a_slow_narrow_action_does_not_hold_up_an_independent_wide_one():
    text = plan(narrow("slow"), narrow("fast"), wide("w1", "fast"), wide("w2", "slow", "w1"))
    order = []

    async def scan(node: str) -> None:
        if node == "slow":
            await first_done.wait()  # would hang into the deadline if w1 waited for it
        order.append(node)

    async def synthesize(node: str) -> None:
        order.append(node)
        first_done.set()

    first_done = asyncio.Event()
    trajectory, _ = episode(text, scan, synthesize)
    assert order == ["fast"] * 4 + ["w1"] + ["slow"] * 4 + ["w2"]
    assert list(trajectory.stages[0].pool.outputs) == ["slow", "fast", "w1", "w2"]


def test_independent_wide_actions_run_together():
    text = plan(narrow("n"), wide("w1", "n"), wide("w2", "n"), wide("w3", "w1", "w2"))
    waiting = set()
    both = asyncio.Event()

    async def synthesize(node: str) -> None:
        waiting.add(node)
        if waiting >= {"w1", "w2"}:
            both.set()
        await both.wait()

    episode(text, at_once, synthesize)
    assert {"w1", "w2"} <= waiting  # one after the other, the first would have waited for ever


def test_a_wide_action_waits_for_all_its_parents():
    text = plan(narrow("n1"), wide("w1", "n1"), narrow("n2"), wide("w2", "w1", "n2", "n1"))
    finished = set()

    async def scan(node: str) -> None:
        await asyncio.sleep(0.01 if node == "n2" else 0)
        finished.add(node)

    async def synthesize(node: str) -> None:
        assert finished >= ({"n1"} if node == "w1" else {"n1", "n2", "w1"})
        await asyncio.sleep(0.005)
        finished.add(node)

    _, model = episode(text, scan, synthesize)
    last = next(p for p in model.prompts if "Task: Q?" in p)
    evidence = last.split("Evidence:\n")[1]
    # In the order that the plan names the inputs.
    assert [line.split()[0].strip(":") for line in evidence.splitlines()] == ["w1"] + ["n2"] * 4 + [
        "n1"
    ] * 4


def test_a_plan_may_name_a_wide_action_before_its_parents():
    text = plan(wide("w1", "w0", "n"), wide("w0", "n"), narrow("n"), wide("w2", "w1"))
    trajectory, _ = episode(text, at_once, at_once)
    assert [call.node for call in trajectory.calls] == [None, "w0", "w1", "w2", None]


def test_one_slot_is_enough_for_any_plan():
    text = plan(*[narrow(f"n{i}") for i in range(5)], wide("w", *[f"n{i}" for i in range(5)]))
    trajectory, _ = episode(text, at_once, at_once, max_concurrency=1)
    assert trajectory.workers.calls == 20
