"""Calls of an item: journal, fair turns, dollars."""

import asyncio
import json
from pathlib import Path

import pytest

from disco_rl.engine.protocols import ModelError
from disco_rl.evaluation.calls import Calls
from disco_rl.evaluation.gate import FairGate
from disco_rl.evaluation.journal import Journal
from disco_rl.evaluation.ledger import Ledger, Price, Spent
from tests.evaluation.methods.served import bench


async def test_a_reply_that_was_paid_for_is_not_asked_for_again(tmp_path: Path) -> None:
    path = tmp_path / "item.jsonl"
    said = iter(["one", "two", "three"])
    async with bench(lambda prompt: next(said), Journal(path)) as b:
        # The same request twice is two samples, not one.
        assert await b.calls.ask("driver", "q", max_tokens=9) == "one"
        assert await b.calls.ask("driver", "q", max_tokens=9) == "two"
        first = b.calls.ledger.to_json()
    async with bench(lambda prompt: next(said), Journal(path)) as b:
        assert await b.calls.ask("driver", "q", max_tokens=9) == "one"
        assert await b.calls.ask("driver", "q", max_tokens=9) == "two"
        assert b.server.bodies == [] and b.calls.journal.replayed == 2
        assert b.calls.ledger.to_json() == first
        assert await b.calls.ask("driver", "q", max_tokens=8) == "three"  # another request
        assert len(b.server.bodies) == 1
        b.calls.journal.drop()
    assert not path.exists()


def test_a_line_cut_off_by_a_kill_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "item.jsonl"
    journal = Journal(path)
    journal.keep(journal.key("a"), {"text": "kept"})
    whole = path.read_text()
    for end in range(len(whole)):
        path.write_text(whole + whole[:end])
        again = Journal(path)
        again.keep(again.key("b"), {"text": "new"})
        third = Journal(path)
        assert third.get(third.key("a")) == {"text": "kept"}
        assert third.get(third.key("b")) == {"text": "new"}
        assert all(json.loads(line) for line in path.read_text().splitlines())


async def test_a_missing_role_is_named() -> None:
    with pytest.raises(ModelError, match="models.worker.url"):
        await Calls("item", {}).ask("worker", "q", max_tokens=1)


async def test_turns_go_round_the_owners() -> None:
    gate, order = FairGate(1), []

    async def call(owner: str) -> None:
        async with gate.turn(owner):
            order.append(owner)
            await asyncio.sleep(0)

    await asyncio.gather(*[call("big") for _ in range(6)], *[call("small") for _ in range(2)])
    # The first is under way when the rest queue up; then they alternate.
    assert order[:5] == ["big", "big", "small", "big", "small"] and order[5:] == ["big"] * 3


async def test_the_gate_never_lets_in_more_nor_loses_a_place() -> None:
    gate, inside, most = FairGate(3), 0, 0

    async def call(owner: int) -> None:
        nonlocal inside, most
        async with gate.turn(str(owner)):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0.001)
            inside -= 1

    tasks = [asyncio.create_task(call(i % 5)) for i in range(60)]
    await asyncio.sleep(0.002)
    for task in tasks[10:40]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert most == 3 and inside == 0
    await asyncio.wait_for(asyncio.gather(*[call(i) for i in range(9)]), 5)


def test_dollars_by_role() -> None:
    ledger = Ledger()
    ledger.roles["driver"] = Spent(prompt=1_000_000, cached=400_000, output=100_000)
    ledger.roles["worker"] = Spent(prompt=5_000_000)
    prices = {"driver": Price(prompt=2.0, output=12.0, cached=0.2)}
    assert ledger.dollars(prices) == pytest.approx(0.6 * 2 + 0.4 * 0.2 + 0.1 * 12)
    assert Price(prompt=2.0).dollars(ledger.roles["driver"]) == pytest.approx(2.0)
    with pytest.raises(ValueError, match="max_calls"):
        FairGate(0)
