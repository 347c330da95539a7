"""A run killed in the middle and resumed: the same table, no reply paid for twice."""

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from disco_rl.engine.protocols import ModelError
from disco_rl.evaluation import runner
from disco_rl.evaluation.benchmarks.item import Item, held
from disco_rl.evaluation.calls import Calls
from disco_rl.evaluation.journal import Journal
from disco_rl.evaluation.ledger import Price
from disco_rl.evaluation.methods.chain_of_agents import ChainOfAgents
from disco_rl.evaluation.methods.protocol import Attempt, Document, Task
from disco_rl.evaluation.scores import Gold
from disco_rl.rewards.judge import JudgeError, MatchJudge
from tests.evaluation.methods.served import WORDS, Bench, bench

TEXT = " ".join(f"Sentence {i} ends here." for i in range(12))
ITEMS = [
    Item(
        f"q/{i}", "100", "ruler_qa", Task(f"Question {i}?"), Gold(("Ada",)),
        held(f"doc-{i}", TEXT),
    )
    for i in range(4)
]  # fmt: skip


def setup(b: Bench | None, method: Any, **settings: Any) -> runner.Setup:
    models = b.calls._models if b else {}
    prices = {"driver": Price(prompt=1.0, output=2.0)}
    kept = {"judge": MatchJudge(), "max_items": 2} | settings
    return runner.Setup(method, models, prices, WORDS, **kept)


def say(prompt: str) -> str:
    return "Ada" if "last reader" in prompt else "notes"


def table(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the report shows, without the seconds."""
    kept = []
    for result in results:
        ledger = {r: {**s, "seconds": 0} for r, s in result["ledger"].items()}
        kept.append({**result, "ledger": ledger, "seconds": 0, "replayed": 0})
    return kept


async def test_killed_and_resumed_it_pays_for_nothing_twice(tmp_path: Path) -> None:
    method = ChainOfAgents(WORDS, chunk=20)
    async with bench(say) as b:
        whole = await runner.run(tmp_path / "whole", ITEMS, setup(b, method))
        paid = len(b.server.bodies)
    assert paid == 4 * (3 + 1)

    sent, results, kills = [], [], 0
    for _ in range(40):  # killed after every few replies, until nothing is left to kill
        async with bench(say) as b:
            work = asyncio.ensure_future(runner.run(tmp_path / "killed", ITEMS, setup(b, method)))
            while not work.done() and len(b.server.bodies) < 3:
                await asyncio.sleep(0.002)
            # Let the replies under way arrive: one that never did was not paid for by us.
            await asyncio.sleep(0.05 if not work.done() else 0)
            if not work.done():
                work.cancel()
                kills += 1
                await asyncio.gather(work, return_exceptions=True)
            sent += [json.dumps(body, sort_keys=True) for body in b.server.bodies]
            if not work.cancelled():
                results = work.result()
                break
    assert table(results) == table(whole)
    # A request in the air when the process dies can be sent again; no reply received is.
    assert len(set(sent)) == paid and len(sent) <= paid + 2 * kills  # two items, a call each
    assert not list((tmp_path / "killed" / "in_flight").iterdir())


async def test_replies_received_before_a_kill_are_never_asked_for_again(tmp_path: Path) -> None:
    """Exact form of the above: the third call is refused, so three replies were received."""
    method = ChainOfAgents(WORDS, chunk=20)

    class Dies(BaseException):  # a kill, not a failure of the item
        pass

    class DyingMethod:
        async def run(self, task: Task, document: Document, calls: Calls) -> Attempt:
            real, made = calls.ask, 0

            async def ask(*args: Any, **kwargs: Any) -> str:
                nonlocal made
                made += 1
                if made == 3:
                    raise Dies
                return await real(*args, **kwargs)

            calls.ask = ask  # type: ignore[method-assign]
            return await method.run(task, document, calls)

    async with bench(say) as b:
        with pytest.raises(Dies):
            await runner.run(tmp_path, ITEMS[:1], setup(b, DyingMethod()))
        assert len(b.server.bodies) == 2
    async with bench(say) as b:
        [result] = await runner.run(tmp_path, ITEMS[:1], setup(b, method))
        assert len(b.server.bodies) == 2 and result["replayed"] == 2
    assert result["ledger"]["worker"]["calls"] == 3 and result["scores"]["official"] == 1
    async with bench(say) as b:
        assert await runner.run(tmp_path, ITEMS[:1], setup(b, method)) == [result]
        assert b.server.bodies == []


class Fails:
    async def run(self, task: Task, document: Document, calls: Calls) -> Attempt:
        if "1" in task.question:
            raise ModelError("the server is down")
        if "2" in task.question:
            await asyncio.sleep(60)
        return Attempt("" if "3" in task.question else "Ada " * 50, truncated=7)


async def test_failures_are_wrong_answers_that_are_shown(tmp_path: Path) -> None:
    results = await runner.run(tmp_path, ITEMS, setup(None, Fails(), deadline_s=0.2))
    assert [r["scores"]["official"] for r in results] == [1.0, 0.0, 0.0, 0.0]
    assert [r["stop"] for r in results] == ["answered", "error", "deadline", "answered"]
    assert results[1]["error"] == "the server is down" and "deadline_s" in results[2]["error"]
    # A verbose reply is cut to the benchmark's own length before it is scored.
    assert len(results[0]["answer"].split()) == 32 and results[0]["cut_answer"]
    assert results[0]["truncated"] == 7


async def test_any_failure_is_the_items_own_and_any_answer_can_be_kept(tmp_path: Path) -> None:
    class Odd:
        async def run(self, task: Task, document: Document, calls: Calls) -> Attempt:
            if "1" in task.question:
                raise RecursionError("too deep")
            return Attempt("Ada \ud800")

    results = await runner.run(tmp_path, ITEMS[:2], setup(None, Odd()))
    assert [r["error"] for r in results] == [None, "RecursionError: too deep"]
    assert (results[0]["answer"], results[1]["stop"]) == ("Ada ?", "error")
    assert runner.read_results(tmp_path) == results


async def test_a_failed_question_is_asked_again_on_resume(tmp_path: Path) -> None:
    await runner.run(tmp_path, ITEMS[:2], setup(None, Fails()))

    class Works:
        async def run(self, task: Task, document: Document, calls: Calls) -> Attempt:
            assert "1" in task.question  # the other one was answered
            return Attempt("Ada")

    results = await runner.run(tmp_path, ITEMS[:2], setup(None, Works()))
    assert [r["error"] for r in results] == [None, None]
    assert runner.read_results(tmp_path) == results


async def test_contexts_are_referred_to_not_copied(tmp_path: Path) -> None:
    async with bench(say) as b:
        await runner.run(tmp_path, ITEMS, setup(b, ChainOfAgents(WORDS, chunk=20)))
    kept = "".join(path.read_text() for path in tmp_path.rglob("*") if path.is_file())
    assert "doc-1" in kept and "Sentence 5" not in kept


async def test_a_judge_that_fails_is_no_wrong_answer(tmp_path: Path) -> None:
    class Broken(MatchJudge):
        async def verdict(self, *args: Any) -> Any:
            raise JudgeError("unreachable")

    [result] = await runner.run(tmp_path, ITEMS[:1], setup(None, Fails(), judge=Broken()))
    assert result["scores"] == {"official": 1.0, "strict": 0.0, "judge": None}


async def test_a_letter_is_left_to_its_own_scorers(tmp_path: Path) -> None:
    class Chooses:
        async def run(self, task: Task, document: Document, calls: Calls) -> Attempt:
            return Attempt("The correct answer is (B)")

    options = ("a lake", "a river")
    item = Item(
        "m", "long", "longbench_v2", Task("What?", options), Gold(("B",), options), held("d", TEXT)
    )
    [result] = await runner.run(tmp_path, [item], setup(None, Chooses()))
    assert (result["scores"]["official"], result["scores"]["judge"]) == (1.0, None)


def test_another_config_is_refused(tmp_path: Path) -> None:
    runner.begin(tmp_path, "a: 1\nb: 2\n")
    runner.begin(tmp_path, "a: 1\nb: 2\n")
    with pytest.raises(ValueError, match="b: 3"):
        runner.begin(tmp_path, "a: 1\nb: 3\n")


async def test_a_result_cut_off_by_a_kill_is_dropped_by_the_run_not_by_a_reader(
    tmp_path: Path,
) -> None:
    kept = '{"id": "a", "stop": "accepted"}\n{"id": "b"'
    (tmp_path / runner.ITEMS).write_text(kept)
    assert runner.read_results(tmp_path) == [{"id": "a", "stop": "accepted"}]
    assert (tmp_path / runner.ITEMS).read_text() == kept
    await runner.run(tmp_path, [], setup(None, Fails()))
    assert (tmp_path / runner.ITEMS).read_text() == kept.partition("\n")[0] + "\n"


@pytest.mark.parametrize("end", ["", '{"key": "c"'])
def test_a_kill_while_a_file_is_repaired_loses_nothing(
    end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Dies(BaseException):
        pass

    def truncates(path: Path, data: bytes) -> int:  # and is killed before it writes
        path.open("wb").close()
        raise Dies

    monkeypatch.setattr(Path, "write_bytes", truncates)
    entry = {"id": "a", "stop": "accepted", "key": "a", "reply": 1}
    path = tmp_path / runner.ITEMS
    path.write_text(json.dumps(entry) + "\n" + end)
    with contextlib.suppress(Dies):
        runner.finished(tmp_path)
    assert runner.read_results(tmp_path) == [entry]
    with contextlib.suppress(Dies):
        Journal(path)
    assert Journal(path).get("a") == 1
    assert path.read_text() == json.dumps(entry) + "\n"
