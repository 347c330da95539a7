"""`bench_workers.py overhead`: processor time of a Worker call, beside bare clients."""

import asyncio
import importlib.util
import json
import resource
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp

from disco_rl.core.plan import NarrowAction
from disco_rl.core.shards import Shard, TextContext
from disco_rl.core.trajectory import WorkerUsage
from disco_rl.engine.workers import build_pool
from disco_rl.engine.workers.chat import SCHEMA
from disco_rl.prompts import load_prompts

CHARS = 16_000  # of a shard of 4,096 tokens
SENTENCE = "The mill by the river was built for a family of weavers who came from the north. "
FORMAT = {
    "type": "json_schema",
    "json_schema": {"name": "reply", "strict": True, "schema": dict(SCHEMA)},
}


def context(shards: int) -> TextContext:
    parts = [(f"Part {i}. " + SENTENCE * 300)[:CHARS] for i in range(shards)]
    return TextContext(
        "bench",
        "".join(parts),
        tuple(Shard(i, i * CHARS, (i + 1) * CHARS, 4096) for i in range(shards)),
    )


def bodies(document: TextContext, calls: int) -> list[dict[str, Any]]:
    prompts, n = load_prompts("full"), len(document.shards)
    return [
        {
            "model": "stub",
            "messages": [
                {
                    "role": "user",
                    "content": prompts.render(
                        "worker", shard=document.read(i % n), instruction=f"Find number {i}."
                    ),
                }
            ],
            "max_tokens": 512,
            "temperature": 0.0,
            "response_format": FORMAT,
        }
        for i in range(calls)
    ]


async def ours(url: str, document: TextContext, calls: int, connections: int) -> None:
    """The whole path: queue, HTTP, schema, span check, memo in memory and on no disk, ledger."""
    settings = {"kind": "chat", "url": url, "model": "stub", "slots": connections, "cache_mb": 0}
    pool, usage, n = build_pool(settings | {"max_concurrency": 10**6}), WorkerUsage(), 0
    n = calls // len(document.shards)
    await asyncio.gather(
        *(pool.run(NarrowAction(f"n{i}", f"Find number {i}."), document, usage) for i in range(n))
    )
    await pool.close()
    if usage.failures or usage.calls != n * len(document.shards) or usage.memo_hits:
        raise RuntimeError(f"not all calls were made and answered: {usage}")


async def bare_aiohttp(url: str, document: TextContext, calls: int, connections: int) -> None:
    slots = asyncio.Semaphore(connections)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=connections)) as session:

        async def ask(body: dict[str, Any]) -> None:
            async with slots, session.post(f"{url}/chat/completions", json=body) as reply:
                json.loads((await reply.json())["choices"][0]["message"]["content"])

        await asyncio.gather(*(ask(body) for body in bodies(document, calls)))


async def bare_openai(url: str, document: TextContext, calls: int, connections: int) -> None:
    import openai

    slots = asyncio.Semaphore(connections)
    async with openai.AsyncOpenAI(base_url=url, api_key="none") as client:

        async def ask(body: dict[str, Any]) -> None:
            async with slots:
                reply = await client.chat.completions.create(**body)
                json.loads(reply.choices[0].message.content)

        await asyncio.gather(*(ask(body) for body in bodies(document, calls)))


Client = Callable[[str, TextContext, int, int], Awaitable[None]]


def overhead(args: Any) -> None:
    """Prints calls a second of this process's own processor time: the server runs in another."""
    script = str(Path(__file__).with_name("_stub_server.py"))
    server = subprocess.Popen([sys.executable, script, "0"], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    url, document = server.stdout.readline().strip(), context(args.shards)
    clients: dict[str, Client] = {"ours": ours, "aiohttp": bare_aiohttp}
    if importlib.util.find_spec("openai"):
        clients["openai"] = bare_openai
    rates: dict[str, list[float]] = {name: [] for name in clients}
    try:
        for _ in range(args.rounds):  # in turn, so that a busy machine is busy for all
            for name, client in clients.items():
                calls = args.calls // 4 if name == "openai" else args.calls
                began = time.process_time()
                asyncio.run(client(url, document, calls, args.connections))
                rates[name].append(calls / (time.process_time() - began))
    finally:
        server.kill()
        server.wait()
    best = {name: round(max(values)) for name, values in rates.items()}
    result: dict[str, Any] = {"calls_per_cpu_second": best, "rounds": args.rounds}
    for other in ("aiohttp", "openai"):
        if other in best:
            result[f"ours_over_{other}"] = round(best["ours"] / best[other], 2)
    if "openai" not in best:
        result["openai"] = "not installed: pip install openai"
    print(json.dumps(result, indent=2))


def queued(args: Any) -> None:
    """Prints the memory that so many waiting calls take, the server answering none of them."""
    document = context(args.shards)

    async def wait() -> None:
        settings = {"kind": "chat", "url": "http://127.0.0.1:9/v1", "model": "stub", "cache_mb": 0}
        pool = build_pool(settings | {"max_concurrency": 10**6, "eject_after": 1, "probe_s": 600})
        before, n = _resident(), args.queued // len(document.shards)
        usage = WorkerUsage()
        work = asyncio.gather(
            *(pool.run(NarrowAction(f"n{i}", f"Find {i}."), document, usage) for i in range(n))
        )
        while usage.calls < n * len(document.shards):
            await asyncio.sleep(0.1)
        mb = (_resident() - before) / 2**20
        print(json.dumps({"queued_calls": usage.calls, "mb": round(mb)}))
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        await pool.close()

    asyncio.run(wait())


def _resident() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
