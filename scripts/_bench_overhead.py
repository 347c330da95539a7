"""`bench_workers.py overhead`: processor time of a Worker call, beside bare clients."""

import asyncio
import gc
import importlib.util
import json
import platform
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
from _bench_stubs import Stub

from disco_rl.core.evidence import NarrowOutput
from disco_rl.core.plan import NarrowAction
from disco_rl.core.shards import Shard, TextContext
from disco_rl.core.trajectory import WorkerUsage
from disco_rl.engine.workers import build_pool
from disco_rl.engine.workers.chat import SCHEMA
from disco_rl.prompts import load_prompts

CHARS = 16_000  # of a shard of 4,096 tokens
ITEM = "Item {} is a mill by the river, built for weavers who came from the north. "
ITEMS = CHARS // len(ITEM.format(999))
OUTPUT_TOKENS = 12  # of a reply of _stub_server.py
FORMAT = {
    "type": "json_schema",
    "json_schema": {"name": "reply", "strict": True, "schema": dict(SCHEMA)},
}


def context(shards: int) -> TextContext:
    """Shards of different texts in which every item stands once."""
    body = "".join(ITEM.format(n) for n in range(ITEMS))
    parts = [f"Part {i}. {body}".ljust(CHARS)[:CHARS] for i in range(shards)]
    return TextContext(
        "bench",
        "".join(parts),
        tuple(Shard(i, i * CHARS, (i + 1) * CHARS, 4096) for i in range(shards)),
    )


def instruction(number: int) -> str:
    """What the stub quotes: it stands in every shard, so the span check finds it."""
    return f"Item {number} is a mill"


def check(outputs: list[NarrowOutput], usage: WorkerUsage, calls: int) -> None:
    """Raises `RuntimeError` unless every call was made, answered, checked and booked once."""
    found = sum(len(output.findings) + output.n_cut for output in outputs)
    placed = all(finding.span for output in outputs for finding in output.findings)
    booked = usage.output_tokens == OUTPUT_TOKENS * calls
    if usage.failures or usage.memo_hits or usage.calls != calls or found != calls:
        raise RuntimeError(f"not all calls were made and answered: {found} finds, {usage}")
    if not (placed and booked):
        raise RuntimeError(f"a quote has no span, or the ledger is wrong: {usage}")


async def scan(pool: Any, document: TextContext, calls: int, usage: WorkerUsage) -> None:
    shards = len(document.shards)
    if calls % shards or calls > shards * ITEMS:
        raise ValueError(f"calls must be a multiple of {shards} and at most {shards * ITEMS}")
    actions = [NarrowAction(f"n{i}", instruction(i)) for i in range(calls // shards)]
    outputs = await asyncio.gather(*(pool.run(action, document, usage) for action in actions))
    check(outputs, usage, calls)


async def ours(
    url: str, document: TextContext, calls: int, connections: int, disk: str | None = None
) -> None:
    """The whole path: queue, HTTP, schema, span check, memo, ledger; `disk` adds its cache."""
    settings = {"kind": "chat", "url": url, "model": "stub", "slots": connections}
    settings |= {"cache_dir": disk} if disk else {"cache_mb": 0}
    pool = build_pool(settings | {"max_concurrency": 10**6})
    await scan(pool, document, calls, WorkerUsage())
    await pool.close()


async def ours_on_disk(url: str, document: TextContext, calls: int, connections: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        await ours(url, document, calls, connections, folder)


def body(document: TextContext, number: int) -> dict[str, Any]:
    shards = len(document.shards)
    content = load_prompts("full").render(
        "worker", shard=document.read(number % shards), instruction=instruction(number // shards)
    )
    return {
        "model": "stub",
        "messages": [{"role": "user", "content": content}],
        "max_tokens": 512,
        "temperature": 0.0,
        "response_format": FORMAT,
    }


async def bare_aiohttp(url: str, document: TextContext, calls: int, connections: int) -> None:
    slots = asyncio.Semaphore(connections)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=connections)) as session:

        async def ask(number: int) -> None:
            async with slots:
                given = body(document, number)
                async with session.post(f"{url}/chat/completions", json=given) as reply:
                    json.loads((await reply.json())["choices"][0]["message"]["content"])

        await asyncio.gather(*(ask(number) for number in range(calls)))


async def bare_openai(url: str, document: TextContext, calls: int, connections: int) -> None:
    import openai

    slots = asyncio.Semaphore(connections)
    settings: Any = {"api_key": "none", "max_retries": 0, "timeout": 3600.0}  # on a busy machine
    async with openai.AsyncOpenAI(base_url=url, **settings) as client:

        async def ask(number: int) -> None:
            async with slots:
                reply: Any = await client.chat.completions.create(**body(document, number))
                json.loads(reply.choices[0].message.content)

        await asyncio.gather(*(ask(number) for number in range(calls)))


Client = Callable[[str, TextContext, int, int], Awaitable[None]]


def overhead(args: Any) -> dict[str, Any]:
    """Calls a second of this process's own processor time: the server runs in another.

    The arms take turns, each round beginning with another one, so that a busy machine is busy for
    all; ratios are medians of the rounds' own. A first, short round isn't counted: imports.
    """
    clients: dict[str, Client] = {
        "ours": ours,
        "ours_disk_cache": ours_on_disk,
        "aiohttp": bare_aiohttp,
    }
    versions = {"python": platform.python_version(), "aiohttp": aiohttp.__version__}
    if importlib.util.find_spec("openai"):
        import openai

        clients["openai"], versions["openai"] = bare_openai, openai.__version__
    rates: dict[str, list[float]] = {name: [] for name in clients}
    stub, document = Stub(), context(args.shards)
    short = args.shards * max(1, args.calls // args.shards // 4)  # a quarter, for the slow one
    try:
        for turn in range(args.rounds + 1):
            names = list(clients)
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                calls = short if name == "openai" or not turn else args.calls
                gc.collect()
                began = time.process_time()
                asyncio.run(clients[name](stub.url, document, calls, args.connections))
                if turn:
                    rates[name].append(calls / (time.process_time() - began))
    finally:
        stub.kill()
    result: dict[str, Any] = {
        "calls_per_cpu_second": {n: round(statistics.median(r)) for n, r in rates.items()},
        "calls": {name: short if name == "openai" else args.calls for name in clients},
        "connections": args.connections,
        "versions": versions,
    }
    for mine in ("ours", "ours_disk_cache"):
        for other in ("aiohttp", "openai"):
            if other in rates:
                ratios = [a / b for a, b in zip(rates[mine], rates[other], strict=True)]
                result[f"{mine}_over_{other}"] = round(statistics.median(ratios), 2)
    result["rounds"] = {name: [round(rate) for rate in each] for name, each in rates.items()}
    if "openai" not in clients:
        result["openai"] = 'not installed: pip install "disco-rl[recipes]"'
    return result


def queued(args: Any) -> dict[str, Any]:
    """The memory that so many waiting calls take, and the most until all are answered."""
    calls, least = args.queued, max(args.shards, -(-args.queued // ITEMS))
    document = context(next(n for n in range(least, calls + 1) if calls % n == 0))
    stub = Stub()

    async def run() -> dict[str, int]:
        settings = {"kind": "chat", "url": stub.url, "model": "stub", "cache_mb": 0}
        settings |= {"slots": args.connections, "deadline_s": 3600.0}
        pool, usage = build_pool(settings | {"max_concurrency": 10**6}), WorkerUsage()
        before = _peak()
        work = asyncio.ensure_future(scan(pool, document, calls, usage))
        while usage.calls < calls and not work.done():
            await asyncio.sleep(0.01)
        waiting, queue = calls - await asyncio.to_thread(stub.replies), _peak() - before
        await work
        await pool.close()
        return {
            "calls": calls,
            "waiting": waiting,
            "queue_mb": queue >> 20,
            "peak_mb": _peak() >> 20,
        }

    try:
        return asyncio.run(run())
    finally:
        stub.kill()


def _peak() -> int:
    """Most bytes that this process has had in memory so far."""
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size if sys.platform == "darwin" else size * 1024
