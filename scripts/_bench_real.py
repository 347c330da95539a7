"""`bench_workers.py real`: what reading costs on real llama.cpp servers, ours beside naive."""

import asyncio
import itertools
import random
import time
from pathlib import Path
from typing import Any

import aiohttp
from _bench_replay import Question, Stage, arms, step
from _virtual_time import run
from omegaconf import OmegaConf

from disco_rl.clients.chat import ChatClient
from disco_rl.clients.http import Endpoint
from disco_rl.core.plan import NarrowAction
from disco_rl.core.shards import Shard, TextContext
from disco_rl.core.trajectory import WorkerUsage
from disco_rl.engine.workers import build_pool
from disco_rl.engine.workers.chat import SCHEMA
from disco_rl.prompts import load_prompts
from disco_rl.serve.commands import ServeConfig, servers
from disco_rl.serve.supervisor import Supervisor

SENTENCE = (
    "the mill by the river was built for a family of weavers who came from the north and sold "
    "cloth at the market of the old town until the flood took the bridge and the road was lost"
)
REPLAY = Path(__file__).resolve().parents[1] / "recipes" / "workers" / "replay.yaml"
COUNTER = "llamacpp:prompt_tokens_total"


class LlamaPool:
    """llama.cpp servers under `serve workers`' own supervisor, and their counters."""

    def __init__(self, gguf: str, replicas: int, context: int, port: int, logs: Path):
        config = ServeConfig(gguf, "llamacpp", replicas, port=port, context=context, logs=str(logs))
        self._servers = servers(config, "bench")
        self._supervisor = Supervisor(self._servers, logs, config.startup_s, 0)
        self._stop = asyncio.Event()
        self.urls = [server.url for server in self._servers]

    async def __aenter__(self) -> "LlamaPool":
        ready = asyncio.Event()

        async def on_ready() -> None:
            ready.set()

        self._task = asyncio.ensure_future(self._supervisor.run(on_ready, self._stop))
        waiting = asyncio.ensure_future(ready.wait())
        await asyncio.wait({self._task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._task.done():
            await self._task
        self._session = aiohttp.ClientSession()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()
        self._stop.set()
        await self._task

    async def computed(self) -> int:
        """Prompt tokens computed so far, by the servers' own counters."""
        total = 0
        for url in self.urls:
            async with self._session.get(url.removesuffix("/v1") + "/metrics") as reply:
                lines = (await reply.text()).splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith(COUNTER + " "))
        return total

    async def tokens(self, text: str) -> int:
        return len(await self._tokens({"content": text}))

    async def prompt(self, content: str) -> list[int]:
        """The tokens that the server makes of a message."""
        messages = [{"role": "user", "content": content}]
        prompt = (await self._post("/apply-template", {"messages": messages}))["prompt"]
        return await self._tokens({"content": prompt, "parse_special": True})

    async def _tokens(self, body: dict[str, Any]) -> list[int]:
        return (await self._post("/tokenize", body))["tokens"]

    async def _post(self, path: str, body: dict[str, Any]) -> Any:
        async with self._session.post(self.urls[0].removesuffix("/v1") + path, json=body) as reply:
            return await reply.json()


async def _context(pool: LlamaPool, shards: int, size: int) -> TextContext:
    rng, words = random.Random(0), SENTENCE.split()
    text, cut = "", []
    for index in range(shards):
        start, end = len(text), len(text)
        while True:
            sentence = " ".join(rng.choices(words, k=40)).capitalize() + ". "
            tokens = await pool.tokens(text[start:] + sentence)
            if tokens > size:
                break
            text += sentence
            end = len(text)
        cut.append(Shard(index, start, end, await pool.tokens(text[start:end])))
    return TextContext("bench", text, tuple(cut))


def instructions(trajectories: int, each: int) -> list[list[str]]:
    """All different: what the memo would save comes on top."""
    return [
        [f"Find who sold cloth number {t * each + i}." for i in range(each)]
        for t in range(trajectories)
    ]


async def _ours(pool: LlamaPool, context: TextContext, args: Any) -> WorkerUsage:
    config = {"kind": "chat", "model": "bench", "url": pool.urls, "prompts": "brief"}
    config |= {"cache_mb": 0, "slots": 1, "max_tokens": args.max_tokens, "attempt_s": 600.0}
    workers, usage = build_pool(config | {"deadline_s": 3600.0}), WorkerUsage()
    await asyncio.gather(
        *(
            workers.run(NarrowAction(f"n{t}-{i}", text), context, usage)
            for t, texts in enumerate(instructions(args.trajectories, args.instructions))
            for i, text in enumerate(texts)
        )
    )
    await workers.close()
    if usage.lost:
        raise RuntimeError(f"{usage.lost} calls were lost")
    return usage


def _prompt(arm: str, instruction: str, text: str) -> str:
    """Ours, or the very words of ours with the instruction first."""
    prompts = load_prompts("brief")
    if arm == "ours":
        return prompts.render("worker", shard=text, instruction=instruction)
    head, tail = prompts.render("worker", shard="\0", instruction=instruction).split("\0")
    return f"{tail.strip()}\n\n{head}{text}"


async def _shape(arm: str, pool: LlamaPool, context: TextContext, args: Any) -> dict[str, Any]:
    """Tokens that all calls on a shard begin with, those that all calls begin with, and the mean
    of those that are a call's own."""
    texts = [t for each in instructions(args.trajectories, args.instructions) for t in each]
    made = [
        [await pool.prompt(_prompt(arm, text, context.read(shard))) for text in texts]
        for shard in range(len(context.shards))
    ]
    prefixes = [_same(prompts) for prompts in made]
    own = [len(p) - same for prompts, same in zip(made, prefixes, strict=True) for p in prompts]
    return {
        "head_tokens": _same([prompt for prompts in made for prompt in prompts]),
        "prefix_tokens": prefixes,
        "own_tokens": round(sum(own) / len(own), 2),
    }


def _same(prompts: list[list[int]]) -> int:
    columns = zip(*prompts, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda column: len(set(column)) == 1, columns))


async def _naive(pool: LlamaPool, context: TextContext, args: Any) -> None:
    """The instruction first, any endpoint, every call made."""
    slots = asyncio.Semaphore(len(pool.urls))
    clients = [
        ChatClient(Endpoint(url, "bench", attempt_s=600.0, deadline_s=3600.0)) for url in pool.urls
    ]

    async def ask(number: int, instruction: str, shard: int) -> None:
        content = _prompt("naive", instruction, context.read(shard))
        async with slots:
            await clients[number % len(clients)].complete(
                [{"role": "user", "content": content}],
                max_tokens=args.max_tokens,
                sampling={"temperature": 0.0},
                schema=SCHEMA,
            )

    calls = [
        (text, shard)
        for texts in instructions(args.trajectories, args.instructions)
        for text in texts
        for shard in range(len(context.shards))
    ]
    await asyncio.gather(*(ask(i, *call) for i, call in enumerate(calls)))
    for client in clients:
        await client.close()


async def real(args: Any) -> dict[str, Any]:
    """Computed prefill tokens over distinct shard tokens, by the servers' own counters."""
    result: dict[str, Any] = {
        "trajectories": args.trajectories,
        "instructions": args.instructions,
        "replicas": args.replicas,
        "gguf": Path(args.gguf).name,
    }
    for arm in args.arms:
        pool = LlamaPool(args.gguf, args.replicas, args.size + 512, args.port, Path(args.logs))
        async with pool:  # fresh servers an arm: nothing is cached
            context = await _context(pool, args.shards, args.size)
            distinct = sum(shard.n_tokens for shard in context.shards)
            result |= {"shards": len(context.shards), "shard_tokens": distinct}
            shape = await _shape(arm, pool, context, args)
            before, began = await pool.computed(), time.perf_counter()
            usage = await (_ours if arm == "ours" else _naive)(pool, context, args)
            computed = await pool.computed() - before
            result[arm] = {
                **shape,
                "computed_tokens": computed,
                "reads": round(computed / distinct, 3),
                "seconds": round(time.perf_counter() - began, 1),
            }
            if usage is not None:
                ledger = usage.prompt_tokens - usage.cached_tokens
                result[arm]["ledger_computed_tokens"] = ledger  # as the replies reported them
    return result


def predicted(result: dict[str, Any], arm: str) -> int:
    """What the replay's simulated servers compute for the same calls."""
    shape = result[arm]
    trajectories = tuple(
        (Stage(0.0, 0.0, tuple(texts)),)
        for texts in instructions(result["trajectories"], result["instructions"])
    )
    question = Question("q", tuple(shape["prefix_tokens"]), trajectories)
    config = OmegaConf.load(REPLAY)
    # Its cache holds everything, as llama.cpp's does at this size.
    settings = {"endpoints": result["replicas"], "slots": 1, "kv_share": 9.0}
    config.merge_with(settings | {k: shape[k] for k in ("head_tokens", "own_tokens")})
    name = {"ours": "+ memo"}.get(arm, arm)
    (chosen,) = (each for each in arms(config) if each.name == name)
    return round(run(step(config, [question], chosen))["computed_tokens"])
