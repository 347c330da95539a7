"""Question groups enter while their shards fit, whole, and none waits for ever."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disco_rl.engine.serving.admission import Admission
from tests.scripts import load

run = load("_virtual_time").run
Stay = tuple[str, int, float]


async def visit(admission: Admission, group: str, tokens: int, seconds: float, log: list) -> None:
    async with admission.admit(group, tokens):
        log.append((group, asyncio.get_running_loop().time(), admission.inside))
        await asyncio.sleep(seconds)


def visits(capacity: int | None, stays: list[Stay], patience: int = 16) -> list:
    async def main() -> list:
        admission, log = Admission(capacity, patience), []
        await asyncio.gather(*(visit(admission, *stay, log) for stay in stays))
        assert admission.inside == 0
        return log

    return run(main())


def test_a_group_enters_whole_and_leaves_with_its_last_member() -> None:
    log = visits(100, [("a", 60, 1.0), ("a", 60, 5.0), ("b", 60, 1.0), ("a", 60, 2.0)])
    assert [(group, began) for group, began, _ in log] == [("a", 0), ("a", 0), ("a", 0), ("b", 5)]


def test_a_smaller_group_may_overtake_but_not_for_ever() -> None:
    stays = [("a", 60, 10.0), ("large", 90, 1.0), *((f"s{i}", 40, 3.0) for i in range(20))]
    order = [group for group, _, _ in visits(100, stays, patience=2)]
    assert order[:4] == ["a", "s0", "s1", "large"]


def test_a_group_over_everything_enters_alone() -> None:
    log = visits(100, [("huge", 500, 2.0), ("b", 10, 1.0)])
    assert [(group, began) for group, began, _ in log] == [("huge", 0), ("b", 2)]


def test_without_a_capacity_all_enter() -> None:
    assert [began for _, began, _ in visits(None, [("a", 10**9, 1.0), ("b", 10**9, 1.0)])] == [0, 0]


@given(
    st.lists(
        st.tuples(st.sampled_from("abcdef"), st.integers(1, 60), st.floats(0.1, 5)), max_size=20
    ),
    st.integers(0, 3),
)
def test_all_enter_and_never_more_than_fits(stays: list[Stay], patience: int) -> None:
    sizes = {group: tokens for group, tokens, _ in stays}
    log = visits(100, [(group, sizes[group], s) for group, _, s in stays], patience)
    assert len(log) == len(stays)
    assert all(inside <= 100 for _, _, inside in log)


@pytest.mark.parametrize("when", ["waiting", "inside"])
def test_a_cancelled_member_gives_its_place_back(when: str) -> None:
    async def main() -> None:
        admission, log = Admission(100), []
        inside = asyncio.ensure_future(visit(admission, "a", 80, 9.0, log))
        waiting = asyncio.ensure_future(visit(admission, "b", 80, 1.0, log))
        last = asyncio.ensure_future(visit(admission, "c", 30, 1.0, log))
        await asyncio.sleep(1.0)
        (waiting if when == "waiting" else inside).cancel()
        await asyncio.gather(inside, waiting, last, return_exceptions=True)
        assert admission.inside == 0
        names = [group for group, _, _ in log]
        assert names == (["a", "c"] if when == "waiting" else ["a", "b", "c"])

    run(main())
