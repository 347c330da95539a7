"""The router on a virtual clock: affinity, retries, ejection and return, hedges, outages."""

import asyncio
from typing import Any

import pytest

from disco_rl.engine.protocols import ModelError
from disco_rl.engine.serving.policy import ServingPolicy
from disco_rl.engine.serving.router import Receipt, Router
from tests.scripts import load

run = load("_virtual_time").run
simulated = load("_simulated_server")
MACHINE = simulated.Machine(prefill=1000.0, decode=10.0)


def servers(n: int, **machine: Any) -> list[Any]:
    shape = simulated.Machine(**{**vars(MACHINE), **machine})
    return [simulated.SimulatedServer(f"s{i}", shape) for i in range(n)]


async def ask(router: Router[Any, Any], shard: str, own: int = 10) -> tuple[Any, Receipt]:
    return await router.ask(shard, 1000, simulated.Call(shard, 1000, own, 10))


async def ask_all(router: Router[Any, Any], shards: list[str]) -> list[tuple[Any, Receipt]]:
    return list(await asyncio.gather(*(ask(router, shard) for shard in shards)))


SHARDS = [f"shard {i}" for i in range(40)]


def test_every_shard_is_read_once_by_one_endpoint() -> None:
    async def main() -> list[Any]:
        pool = servers(4)
        await ask_all(Router(pool), SHARDS * 6)
        return pool

    pool = run(main())
    assert sum(server.calls for server in pool) == 240
    assert sum(server.computed for server in pool) == 40 * 1000 + 240 * 10
    assert all(server.calls >= 5 * 6 for server in pool)  # of 10 shards each on average


def test_without_gate_and_affinity_it_is_read_many_times() -> None:
    async def main() -> int:
        pool = servers(4)
        await ask_all(Router(pool, ServingPolicy(gate=False, affinity=False)), SHARDS * 6)
        return sum(server.computed for server in pool)

    assert run(main()) > 3 * 40 * 1000


def test_an_endpoint_more_or_less_moves_only_its_own_shards() -> None:
    async def homes(pool: list[Any]) -> dict[str, str]:
        router = Router[Any, Any](pool)
        return {shard: router._ranked(shard)[0].name for shard in map(str, range(1000))}

    five = servers(5)
    with_five, with_four = run(homes(five)), run(homes(five[:4]))
    moved = [shard for shard in with_five if with_five[shard] != with_four[shard]]
    assert {with_five[shard] for shard in moved} == {"s4"}
    assert 100 < len(moved) < 300


class Scripted:
    """A server that fails as told, in order, and then serves in `seconds`."""

    def __init__(self, name: str, *failures: ModelError | None):
        self.name, self.failures, self.asked = name, list(failures), 0
        self.well, self.seconds = True, 1.0

    async def ask(self, request: str, seconds: float) -> str:
        self.asked += 1
        failure = self.failures.pop(0) if self.failures else None
        if failure:
            raise failure
        await asyncio.sleep(self.seconds)
        return f"{request} by {self.name}"

    async def healthy(self) -> bool:
        return self.well

    async def close(self) -> None:
        pass


def passing(*, busy: bool = False, retry_after: float = 0.0) -> ModelError:
    error = ModelError("no room" if busy else "connection refused")
    error.retryable, error.busy, error.retry_after = True, busy, retry_after
    return error


def ordered(router: Router[Any, Any]) -> list[str]:
    return [member.name for member in router._ranked("x")]


def test_a_failed_call_is_tried_on_another_endpoint() -> None:
    async def main() -> tuple[list[Any], str, Receipt]:
        pool = [Scripted("a"), Scripted("b"), Scripted("c")]
        router = Router(pool)
        first = next(s for s in pool if s.name == ordered(router)[0])
        first.failures = [passing()]
        reply, receipt = await router.ask("x", 1, "q")
        assert reply == f"q by {ordered(router)[1]}" and first.asked == 1
        # One failure isn't enough to lose the endpoint, and what it has read.
        reply, _ = await router.ask("x", 1, "q")
        return pool, reply, receipt

    pool, reply, receipt = run(main())
    assert receipt.retries == 1 and sum(s.asked for s in pool) == 3
    assert reply.startswith("q by")


def test_a_refusal_is_not_tried_again() -> None:
    async def main() -> int:
        pool = [Scripted(name, ModelError("context length")) for name in "ab"]
        with pytest.raises(ModelError, match=r"^context length$"):
            await Router(pool).ask("x", 1, "q")
        return sum(s.asked for s in pool)

    assert run(main()) == 1


def test_tries_and_deadline_are_bounded() -> None:
    async def main(**policy: Any) -> tuple[int, float]:
        server = Scripted("a", *(passing(busy=True) for _ in range(99)))
        with pytest.raises(ModelError, match="reached"):
            await Router([server], ServingPolicy(**policy)).ask("x", 1, "q")
        return server.asked, asyncio.get_running_loop().time()

    assert run(main(max_attempts=4))[0] == 4
    asked, seconds = run(main(max_attempts=99, deadline_s=30.0))
    assert asked < 20 and seconds <= 30.0


def test_a_server_says_how_long_to_wait() -> None:
    async def main() -> float:
        server = Scripted("a", passing(busy=True, retry_after=7.0))
        await Router([server]).ask("x", 1, "q")
        return asyncio.get_running_loop().time()

    assert run(main()) == 8.0


def test_a_dead_endpoint_is_ejected_and_returns(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> list[Any]:
        pool = servers(3)
        router = Router(pool, ServingPolicy(slots=4))
        dead = pool[1]
        dead.down = True
        await ask_all(router, SHARDS * 2)
        assert dead.calls == 0
        dead.down = False
        await asyncio.sleep(300.0)
        await ask_all(router, SHARDS)
        assert dead.calls > 0
        await router.close()
        return pool

    pool = run(main())
    assert sum(server.calls for server in pool) == 120  # none lost, none doubled
    assert "s1 is out of service: 3 failures in a row" in caplog.text
    assert "s1 is back in service" in caplog.text


def test_while_all_are_down_calls_wait_and_then_go_on(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> tuple[float, list[Any], Router[Any, Any]]:
        pool = servers(2)
        router = Router(pool, ServingPolicy(deadline_s=60.0))
        for server in pool:
            server.down = True
        calls = asyncio.ensure_future(ask_all(router, SHARDS))
        await asyncio.sleep(3600.0)
        assert not calls.done() and router.outage() > 3500
        for server in pool:
            server.down = False
        assert len(await calls) == 40
        outage = router.outage()
        await asyncio.sleep(100.0)
        assert router.outage() == outage
        return outage, pool, router

    outage, pool, _ = run(main())
    assert 3590 < outage < 3700 and sum(server.calls for server in pool) == 40
    assert "every Worker endpoint is down (s0, s1): calls wait" in caplog.text


def test_a_call_that_lags_is_hedged_and_answered_once() -> None:
    async def main() -> tuple[Receipt, list[Any], float]:
        pool = servers(2)
        router = Router(pool, ServingPolicy(hedge_s=5.0))
        slow = next(s for s in pool if s.name == router._ranked("x")[0].name)
        slow.slowdown = 1000.0
        _, receipt = await ask(router, "x")
        return receipt, pool, asyncio.get_running_loop().time()

    receipt, pool, seconds = run(main())
    assert receipt.hedges == 1 and receipt.retries == 0
    assert sum(server.calls for server in pool) == 1 and 5.0 < seconds < 10.0


def test_hedges_are_a_small_share() -> None:
    async def main() -> int:
        pool = servers(2)
        router = Router(pool, ServingPolicy(hedge_s=0.01))
        return sum(receipt.hedges for _, receipt in await ask_all(router, SHARDS * 5))

    assert 0 < run(main()) < 100  # of 200 calls, all of which lag


def test_an_endpoint_that_slows_down_is_left_alone_for_a_while() -> None:
    async def main() -> tuple[float, float]:
        pool = servers(3)
        router = Router(pool, ServingPolicy(slots=4, hedge_s=8.0))
        clock = asyncio.get_running_loop().time

        async def batch(name: str) -> float:
            began = clock()
            await ask_all(router, [f"{name} {i}" for i in range(300)])
            return clock() - began

        before = await batch("before")
        pool[0].slowdown = 10.0
        during = await batch("during")
        await router.close()
        return before, during

    before, during = run(main())
    assert during < 3.5 * before  # a third of the calls, each ten times slower, would be 10


def test_a_call_that_lags_while_all_are_down_waits_for_its_own_reply() -> None:
    async def main() -> tuple[str, Receipt, list[int]]:
        pool = [Scripted("a"), Scripted("b")]
        router = Router(pool, ServingPolicy(hedge_s=5.0))
        home = next(s for s in pool if s.name == ordered(router)[0])
        home.seconds = 20.0
        call = asyncio.ensure_future(router.ask("x", 1, "q"))
        await asyncio.sleep(1.0)
        for server, member in zip(pool, router._members, strict=True):
            server.well = False
            for _ in range(3):
                router._health.failed(member, "connection refused")
        reply, receipt = await call
        await router.close()
        return reply, receipt, [server.asked for server in pool if server is not home]

    reply, receipt, elsewhere = run(main())
    assert reply.startswith("q by") and receipt.served_s == 20.0
    assert (receipt.hedges, elsewhere) == (0, [0])  # nobody is there to ask


def test_where_all_are_slow_none_is_ejected(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> list[Any]:
        pool = servers(3)
        router = Router(pool, ServingPolicy(slots=16, hedge_s=1.5))
        await ask_all(router, [f"shard {i}" for i in range(300)])
        return pool

    run(main())
    assert "out of service" not in caplog.text


def test_the_same_endpoint_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one endpoint, each once"):
        Router([Scripted("a"), Scripted("a")])


@pytest.mark.parametrize(("field", "value"), [("slots", 0), ("hedge_s", -1.0)])
def test_a_policy_that_cannot_be_is_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"worker.{field} must be"):
        ServingPolicy(**{field: value})  # type: ignore[arg-type]
