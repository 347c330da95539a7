"""What the model judge remembers, and for whom: its verdicts in memory, on disk, under way."""

import asyncio
import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from disco_rl.rewards import JudgeError, LLMJudge, build_judge
from disco_rl.rewards.canaries import canary_judge
from tests.clients.scripted import serve, status
from tests.rewards.endpoint import NO, ONE_TRY, UNDECIDED, WHO, YES, judging, verdict


async def test_the_same_content_is_asked_once() -> None:
    async with judging(verdict("yes"), verdict("no")) as (judge, server):
        assert await judge.verdict(*WHO) is YES
        # Thought or not, the reply says the same.
        assert await judge.verdict(*WHO[:2], f"<think>x</think>{WHO[2]}") is YES
        assert await judge.verdict(*WHO[:2], "Tom Roe") is NO
        assert await judge.supports(WHO[0], WHO[2], ["q"]) is NO  # another kind of question
    assert len(server.bodies) == 3
    assert (judge.ledger.asked, judge.ledger.cached) == (3, 1)


async def test_the_same_question_under_way_is_waited_for() -> None:
    async with judging(drips_verdict("yes", 0.2)) as (judge, server):
        first = asyncio.create_task(judge.verdict(*WHO))
        others = [asyncio.create_task(judge.verdict(*WHO)) for _ in range(7)]
        await asyncio.sleep(0.05)
        first.cancel()  # its trajectory's deadline: the others still get their verdict
        assert set(await asyncio.gather(*others)) == {YES}
    assert len(server.bodies) == 1 and judge.ledger.cached == 7 and judge.ledger.errors == 1


def drips_verdict(word: str, seconds: float) -> Any:
    async def reply(request: Any) -> Any:
        await asyncio.sleep(seconds)
        return await verdict(word)(request)

    return reply


async def test_an_error_is_not_remembered() -> None:
    async with judging(status(500), verdict("yes")) as (judge, _):
        with pytest.raises(JudgeError):
            await judge.verdict(*WHO)
        assert await judge.verdict(*WHO) is YES


async def test_verdicts_outlive_the_judge_that_gave_them(tmp_path: Path) -> None:
    kept = {"cache_dir": str(tmp_path / "deep" / "judge")}
    async with judging(verdict("yes"), verdict("no"), verdict("undecided"), **kept) as (judge, _):
        assert await judge.verdict(*WHO) is YES
        assert await judge.supports(WHO[0], WHO[2], ["q"]) is NO
        assert await judge.verdict(*WHO[:2], "Tom Roe") is UNDECIDED
    async with judging(status(500), **kept) as (judge, server):  # the next start: nobody is asked
        assert await judge.verdict(*WHO) is YES
        assert await judge.supports(WHO[0], WHO[2], ["q"]) is NO
        assert await judge.verdict(*WHO[:2], "Tom Roe") is UNDECIDED
        assert server.bodies == [] and judge.ledger.cached == 3
        with pytest.raises(JudgeError):
            await judge.verdict(*WHO[:2], "Una Bay")
    async with judging(verdict("no"), **kept) as (judge, _):  # an error was not kept
        assert await judge.verdict(*WHO[:2], "Una Bay") is NO


async def test_processes_share_verdicts_while_they_run(tmp_path: Path) -> None:
    kept = {"cache_dir": str(tmp_path)}
    async with (
        judging(verdict("yes"), **kept) as (mine, _),
        judging(status(500), **kept) as (
            other,
            server,
        ),
    ):
        assert await mine.verdict(*WHO) is YES
        for _ in range(200):  # written within half a second
            if list(_rows(tmp_path)):
                break
            await asyncio.sleep(0.05)
        assert await other.verdict(*WHO) is YES and server.bodies == []


def _rows(folder: Path) -> list[tuple[str]]:
    (file,) = folder.glob("*.sqlite")
    with contextlib.closing(sqlite3.connect(file)) as db:
        return db.execute("SELECT text FROM replies").fetchall()


@pytest.mark.parametrize(
    "change",
    [
        {"model": "another"},
        {"fallback_url": "http://127.0.0.1:9/v1", "fallback_model": "another"},
        {"sampling": {"temperature": 1.0}},
        {"sampling": {"temperature": 1.0}, "votes": 3},
    ],
)
async def test_another_judge_does_not_take_over_verdicts(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    kept = {"cache_dir": str(tmp_path)}
    async with judging(verdict("yes"), **kept) as (judge, _):
        assert await judge.verdict(*WHO) is YES
    async with judging(verdict("no"), **kept, **change) as (judge, _):
        assert await judge.verdict(*WHO) is NO
        assert judge.ledger.cached == 0


async def test_a_judge_that_is_tested_is_asked_though_its_verdicts_are_kept(
    tmp_path: Path,
) -> None:
    kept = {"cache_dir": str(tmp_path)}
    async with judging(verdict("yes"), **kept) as (judge, _):
        assert await judge.verdict(*WHO) is YES
    async with serve(verdict("no")) as server:
        config = {"name": "llm", "url": server.url, "model": "judge", **ONE_TRY, **kept}
        for made in (build_judge(config, fresh=True), canary_judge(config)):
            assert isinstance(made, LLMJudge)
            assert await made.verdict(*WHO) is NO
            await made.close()
    assert len(_rows(tmp_path)) == 1  # nor does its answer take the place of the kept one


async def test_the_cache_is_bounded() -> None:
    async with judging(verdict("yes"), cache_size=2) as (judge, server):
        for reply in ("a1", "a2", "a3", "a3", "a1"):
            await judge.verdict("Who?", ["x"], reply)
    assert len(server.bodies) == 4
