"""Held groups: first come first held, nobody waits, and servers keep what is held."""

import asyncio
from typing import Any

import pytest

from disco_rl.engine.serving.holds import Holds
from disco_rl.engine.serving.lane import Lane
from tests.scripts import load

run = load("_virtual_time").run
simulated = load("_simulated_server")


async def stay(holds: Holds, group: str, tokens: int, seconds: float) -> None:
    with holds.member(group, tokens):
        await asyncio.sleep(seconds)


def held(stays: list[tuple[str, int, float]], at: list[float], tokens: int = 100) -> list[str]:
    """Which groups are held at these times, where all members come at 0."""

    async def main() -> list[str]:
        holds, seen = Holds(tokens, hold_s=10.0), []
        tasks = [asyncio.ensure_future(stay(holds, *each)) for each in stays]
        for time in at:
            await asyncio.sleep(time - asyncio.get_running_loop().time())
            seen.append("".join(sorted({name for name, _, _ in stays if name in holds})))
        await asyncio.gather(*tasks)
        return seen

    return run(main())


def test_who_comes_first_is_held_and_a_smaller_one_passes() -> None:
    assert held([("a", 60, 9.0), ("b", 60, 9.0), ("c", 40, 9.0)], [1.0]) == ["ac"]


def test_a_group_is_held_until_its_last_member_and_its_place_a_while_longer() -> None:
    stays = [("a", 60, 2.0), ("a", 60, 5.0), ("b", 60, 99.0)]
    assert held(stays, [1.0, 4.0, 6.0, 14.0, 16.0]) == ["a", "a", "", "", "b"]


def test_one_over_everything_is_never_held() -> None:
    assert held([("a", 101, 9.0), ("b", 100, 9.0)], [1.0, 8.0]) == ["b", "b"]


@pytest.mark.parametrize("hold_s", [0.0, 60.0])
def test_lane_and_server_keep_what_is_held(hold_s: float) -> None:
    async def main() -> list[tuple[bool, int]]:
        lane = Lane(1, kv_tokens=30)
        server = simulated.SimulatedServer("s", simulated.Machine(1000.0, 10.0, kv_tokens=30))

        async def call(shard: str, hold: float) -> tuple[bool, int]:
            async with lane.turn(shard, 10, hold) as turn:
                used: Any = await server.ask(simulated.Call(shard, 10, 0, 1, hold), 1e9)
                turn.read = True
            return turn.first, used.cached

        await call("held", hold_s)
        for shard in "abcd":
            await call(shard, 0.0)
        return [await call("held", hold_s), await call("a", 0.0)]

    kept, other = run(main())
    assert kept == ((False, 10) if hold_s else (True, 0))
    assert other == (True, 0)


def test_what_was_held_leaves_before_what_is_read_later() -> None:
    async def main() -> int:
        server = simulated.SimulatedServer("s", simulated.Machine(1000.0, 10.0, kv_tokens=30))
        await server.ask(simulated.Call("held", 10, 0, 1, 20.0), 1e9)
        await asyncio.sleep(30.0)
        for shard in "abc":
            await server.ask(simulated.Call(shard, 10, 0, 1), 1e9)
        used = await server.ask(simulated.Call("held", 10, 0, 1), 1e9)
        return int(used.cached)

    assert run(main()) == 0
