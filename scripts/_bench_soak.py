"""`bench_workers.py soak`: three endpoints, one killed and one slowed to a tenth in the middle."""

import asyncio
import json
import re
import statistics
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from _bench_overhead import context

from disco_rl.core.trajectory import WorkerUsage
from disco_rl.engine.protocols import ModelError, Scan
from disco_rl.engine.workers import build_worker

PHASES = ("before", "during", "after")


class Stub:
    """_stub_server.py in a process of its own."""

    def __init__(self, port: int = 0, delay: float = 0.0):
        script = str(Path(__file__).with_name("_stub_server.py"))
        command = [sys.executable, script, str(port), str(delay)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        self.port = int(re.findall(r":(\d+)/", self.url)[0])

    def slow(self, delay: float) -> None:
        address = self.url.removesuffix("/v1") + "/control"
        body = json.dumps({"delay": delay}).encode()
        request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
        urllib.request.urlopen(request, timeout=30).close()

    def requests(self) -> int:
        address = self.url.removesuffix("/v1") + "/counts"
        with urllib.request.urlopen(address, timeout=30) as reply:
            return int(json.load(reply)["requests"])

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


async def soak(args: Any) -> None:
    """Calls all the time from `clients` tasks, a phase after the other; prints what each saw."""
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
        "probe_s": 0.5,
    }
    worker: Any = build_worker(settings)
    done: dict[str, list[tuple[float, Scan]]] = {phase: [] for phase in PHASES}
    requests = lost = 0  # requests: as the stubs count them
    asked, phase, stop, wrong = 0, "before", False, 0

    async def client() -> None:
        nonlocal asked, wrong, lost
        while not stop:
            number, asked = asked, asked + 1
            began = time.perf_counter()
            try:
                scan = await worker.scan(f"Find {number}.", document, number % args.shards)
            except ModelError:
                lost += 1
                continue
            done[phase].append((time.perf_counter() - began, scan))
            wrong += [quote.text for quote in scan.quotes] != [f"Find {number}."]

    clients = [asyncio.ensure_future(client()) for _ in range(args.clients)]
    try:
        await asyncio.sleep(args.seconds)
        phase = "during"
        requests += stubs[0].requests()  # its count dies with it
        stubs[0].kill()
        stubs[1].slow(args.delay * 10)
        await asyncio.sleep(args.seconds)
        stubs[0] = Stub(stubs[0].port, args.delay)
        stubs[1].slow(args.delay)
        await asyncio.sleep(5.0)  # to return into service
        phase = "after"
        await asyncio.sleep(args.seconds)
        stop = True
        await asyncio.gather(*clients)
        requests += sum(stub.requests() for stub in stubs)
    finally:
        for task in clients:
            task.cancel()
        await worker.close()
        for stub in stubs:
            stub.kill()
    seconds = {"before": args.seconds, "during": args.seconds + 5.0, "after": args.seconds}
    result = {name: _figures(done[name], seconds[name]) for name in PHASES}
    # A lost call's retries aren't known: where calls were lost this is an upper bound.
    again = sum(result[name]["retries"] + result[name]["hedges"] for name in PHASES)
    doubled = max(0, requests - asked - int(again))
    print(json.dumps({**result, "lost": lost, "doubled": doubled, "wrong": wrong}, indent=2))


def _figures(calls: list[tuple[float, Scan]], seconds: float) -> dict[str, float]:
    took = sorted(second for second, _ in calls)
    usage = WorkerUsage()
    for _, scan in calls:
        usage.retries += scan.retries
        usage.hedges += scan.hedges
    return {
        "calls": len(took),
        "calls_per_s": round(len(took) / seconds, 1),
        "median_ms": round(statistics.median(took) * 1000, 1),
        "p99_ms": round(took[int(len(took) * 0.99)] * 1000, 1),
        "retries": usage.retries,
        "hedges": usage.hedges,
    }
