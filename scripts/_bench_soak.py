"""`bench_workers.py soak`: three endpoints, one killed and one slowed to a tenth in the middle."""

import asyncio
import itertools
import statistics
import time
from typing import Any

from _bench_overhead import OUTPUT_TOKENS, context
from _bench_stubs import Stub

from disco_rl.core.evidence import NarrowOutput
from disco_rl.core.plan import NarrowAction
from disco_rl.core.trajectory import WorkerUsage
from disco_rl.engine.workers import build_pool

PHASES = ("before", "during", "returning", "after")
Done = tuple[float, WorkerUsage, NarrowOutput]  # seconds, ledger and result of one call
RETURN_S = 8.0  # longer than the longest pause between probes


async def soak(args: Any) -> dict[str, Any]:
    """Calls all the time from `clients` tasks, a phase after the other: what each phase saw."""
    stubs = [Stub(delay=args.delay) for _ in range(3)]
    document = context(args.shards)
    settings = {
        "kind": "chat",
        "url": [stub.url for stub in stubs],
        "model": "stub",
        "cache_mb": 0,
        "slots": args.slots,
        "hedge_s": args.delay * 4,
        "attempt_s": args.delay * 40,
        "probe_s": RETURN_S / 16,
    }
    pool = build_pool(settings)
    done: dict[str, list[Done]] = {phase: [] for phase in PHASES}
    began_at: list[float] = []  # each phase, and the end
    asked, wrong, phase, stop = 0, 0, "before", False

    async def client() -> None:
        nonlocal asked, wrong
        while not stop:
            number, asked = asked, asked + 1
            usage, text, began = WorkerUsage(), f"Find number {number}.", time.perf_counter()
            action = NarrowAction(f"n{number}", text, (number % args.shards,))
            output = await pool.run(action, document, usage)
            done[phase].append((time.perf_counter() - began, usage, output))
            if not output.failures:
                wrong += [finding.quote for finding in output.findings] != [text]

    async def go_on(name: str, least: float) -> None:
        nonlocal phase
        phase = name
        began_at.append(time.perf_counter())
        await asyncio.sleep(least)

    async def requests() -> list[int]:
        return list(await asyncio.gather(*(asyncio.to_thread(stub.requests) for stub in stubs)))

    clients = [asyncio.ensure_future(client()) for _ in range(args.clients)]
    try:
        await go_on("before", args.seconds)
        dead = await asyncio.to_thread(stubs[0].requests)  # its count dies with it
        stubs[0].kill()
        await asyncio.to_thread(stubs[1].slow, args.delay * 10)
        await go_on("during", args.seconds)
        stubs[0] = await asyncio.to_thread(Stub, stubs[0].port, args.delay)
        await asyncio.to_thread(stubs[1].slow, args.delay)
        await go_on("returning", RETURN_S)
        earlier = await requests()
        await go_on("after", args.seconds)
        stop = True
        began_at.append(time.perf_counter())
        await asyncio.gather(*clients)
        later = await requests()
    finally:
        for task in clients:
            task.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
        await pool.close()
        for stub in stubs:
            stub.kill()
    seconds = [end - begin for begin, end in itertools.pairwise(began_at)]
    result: dict[str, Any] = {
        name: _figures(done[name], took) for name, took in zip(PHASES, seconds, strict=True)
    }
    everything = [each for calls in done.values() for each in calls]
    answered = sum(not output.failures for _, _, output in everything)
    booked = sum(usage.output_tokens for _, usage, _ in everything)
    tries = asked + sum(usage.retries + usage.hedges for _, usage, _ in everything)
    result |= {
        "during_over_before": round(
            result["during"]["calls_per_s"] / result["before"]["calls_per_s"], 2
        ),
        "after_over_before": round(
            result["after"]["calls_per_s"] / result["before"]["calls_per_s"], 2
        ),
        "served_after": [b - a for a, b in zip(earlier, later, strict=True)],
        "asked": asked,
        "lost": asked - answered,
        # Of each reply 12 tokens are booked: more are a reply counted twice.
        "doubled": booked // OUTPUT_TOKENS - answered,
        "wrong": wrong,
        # Requests beyond a call's first, its retries and its hedges. What the killed server took
        # after it was counted is missing.
        "unexplained_requests": max(0, dead + sum(later) - tries),
    }
    return result


def _figures(calls: list[Done], seconds: float) -> dict[str, float]:
    took = sorted(second for second, _, _ in calls)
    return {
        "calls": len(took),
        "calls_per_s": round(len(took) / seconds, 1),
        "median_ms": round(statistics.median(took) * 1000, 1),
        "p99_ms": round(took[int(len(took) * 0.99)] * 1000, 1),
        "retries": sum(usage.retries for _, usage, _ in calls),
        "hedges": sum(usage.hedges for _, usage, _ in calls),
    }
