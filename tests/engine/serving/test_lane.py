"""A lane: bounded, the first call on a shard ahead, what is read before what is not."""

import asyncio

import pytest

from disco_rl.engine.serving.lane import Lane, MovedError
from tests.scripts import load

run = load("_virtual_time").run


class Log:
    """Calls in the order in which they began, each taking a second."""

    def __init__(self, lane: Lane):
        self.lane = lane
        self.began: list[tuple[float, str, bool]] = []
        self.running = self.most = 0

    async def call(self, shard: str | None, tokens: int = 10, *, fail: bool = False) -> None:
        async with self.lane.turn(shard, tokens) as turn:
            now = asyncio.get_running_loop().time()
            self.began.append((now, shard or "-", turn.first))
            self.running += 1
            self.most = max(self.most, self.running)
            await asyncio.sleep(1.0)
            self.running -= 1
            turn.read = not fail

    def all(self, *shards: str | None) -> list[tuple[float, str, bool]]:
        async def main() -> None:
            await asyncio.gather(*(self.call(shard) for shard in shards))

        run(main())
        return self.began


def test_the_first_call_reads_the_shard_and_the_rest_follow_together() -> None:
    log = Log(Lane(8))
    assert log.all("a", "a", "a", "b") == [
        (0, "a", True),
        (0, "b", True),
        (1, "a", False),
        (1, "a", False),
    ]


def test_a_call_that_names_no_shard_waits_for_nobody() -> None:
    log = Log(Lane(8))
    assert log.all(None, None, None) == [(0, "-", False)] * 3


def test_no_more_calls_than_slots() -> None:
    log = Log(Lane(2))
    log.all(*"abcabcabc", None, None)
    assert log.most == 2 and len(log.began) == 11


def test_few_shards_are_read_at_once_and_the_others_gather_calls() -> None:
    log = Log(Lane(8, reads=2))
    began = log.all(*"abcd", *"abcd")
    assert [each for each in began if each[0] == 0] == [(0, "a", True), (0, "b", True)]
    assert [(t, s) for t, s, first in began if first] == [(0, "a"), (0, "b"), (1, "c"), (1, "d")]
    assert [(t, s) for t, s, first in began if not first] == [
        (1, "a"),
        (1, "b"),
        (2, "c"),
        (2, "d"),
    ]


def test_calls_on_a_shard_that_is_read_go_before_a_shard_that_is_not() -> None:
    log = Log(Lane(1))
    assert [shard for _, shard, _ in log.all(*"abcabcabc")] == list("aaabbbccc")


def test_a_shard_counts_as_read_as_long_as_the_cache_holds_it() -> None:
    async def main(kv_tokens: int | None) -> list[tuple[float, str, bool]]:
        log = Log(Lane(1, kv_tokens))
        for shard in "abca":
            await log.call(shard)
        return log.began

    assert [first for _, _, first in run(main(30))] == [True, True, True, False]
    assert [first for _, _, first in run(main(20))] == [True, True, True, True]
    assert [first for _, _, first in run(main(None))] == [True, True, True, False]


def test_when_the_first_call_fails_the_next_one_goes_ahead() -> None:
    async def main() -> list[tuple[float, str, bool]]:
        log = Log(Lane(8))
        await asyncio.gather(log.call("a", fail=True), log.call("a"), log.call("a"))
        return log.began

    assert run(main()) == [(0, "a", True), (1, "a", True), (2, "a", False)]


@pytest.mark.parametrize("who", ["the first", "a waiting one", "one whose turn has just come"])
def test_a_cancelled_call_holds_up_nobody(who: str) -> None:
    async def main() -> list[tuple[float, str, bool]]:
        log = Log(Lane(1))
        calls = [asyncio.ensure_future(log.call("a")) for _ in range(3)]
        await asyncio.sleep(0.5)
        if who == "the first":
            calls[0].cancel()
        elif who == "a waiting one":
            calls[1].cancel()
        else:
            await calls[0]
            calls[1].cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await log.call("b")
        assert log.lane.waiting == 0
        return log.began

    began = run(main())
    assert began[-1][1] == "b" and began[-2][1] == "a" and len(began) in (3, 4)


def test_clearing_sends_those_who_wait_away_and_lets_those_who_run_finish() -> None:
    async def main() -> None:
        log = Log(Lane(1))
        running = asyncio.ensure_future(log.call("a"))
        waiting = [asyncio.ensure_future(log.call(shard)) for shard in "ab"]
        await asyncio.sleep(0.5)
        log.lane.clear(forget=True)
        moved = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(error) for error in moved] == [MovedError, MovedError]
        await running
        await log.call("a")
        assert log.began == [(0, "a", True), (1, "a", False)]  # read after the clearing

    run(main())


def test_many_waiting_calls_are_handed_out_in_linear_time() -> None:
    log = Log(Lane(64))
    log.all(*(f"s{i % 2000}" for i in range(20_000)))
    assert len(log.began) == 20_000
    assert sum(first for _, _, first in log.began) == 2000
