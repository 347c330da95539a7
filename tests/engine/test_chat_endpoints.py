"""The chat Worker over several real servers: who reads what, what is asked once, who dies."""

import asyncio
import json
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from disco_rl.core.plan import NarrowAction
from disco_rl.core.shards import TextContext
from disco_rl.core.trajectory import WorkerUsage
from disco_rl.engine.protocols import BadReplyError, ModelError
from disco_rl.engine.workers import build_pool, build_worker
from tests.clients.scripted import says, serve, status
from tests.fakes import count_words
from tests.scripts import SCRIPTS

NOTHING = says({"found": False, "quotes": []}, prompt_tokens=100, completion_tokens=5)
TEXT = " ".join(f"Sentence {i} speaks of thing {i}." for i in range(60))
CONTEXT = TextContext.cut("doc", TEXT, count_words, 30)
N = len(CONTEXT.shards)


def config(*urls: str, **changes: Any) -> dict[str, Any]:
    quick = {"cache_mb": 0, "probe_s": 0.05, "max_attempts": 3}
    return {"kind": "chat", "url": list(urls), "model": "tiny", **quick, **changes}


class Stub:
    """scripts/_stub_server.py in a process of its own, which can be killed and started again."""

    def __init__(self, port: int = 0, delay: float = 0.0):
        command = [sys.executable, str(SCRIPTS / "_stub_server.py"), str(port), str(delay)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        self.port = int(re.findall(r":(\d+)/", self.url)[0])

    def counts(self) -> dict[str, Any]:
        with urllib.request.urlopen(self.url[: -len("/v1")] + "/counts", timeout=10) as reply:
            return json.load(reply)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def stubs() -> Iterator[list[Stub]]:
    started = [Stub(delay=0.01) for _ in range(3)]
    yield started
    for stub in started:
        stub.kill()


async def test_a_shards_calls_go_to_one_endpoint_the_first_ahead() -> None:
    async with serve(NOTHING) as one, serve(NOTHING) as two, serve(NOTHING) as three:
        pool = build_pool(config(one.url, two.url, three.url))
        usage = WorkerUsage()
        actions = [NarrowAction(f"n{i}", f"Find thing {i}.") for i in range(5)]
        await asyncio.gather(*(pool.run(action, CONTEXT, usage) for action in actions))
        await pool.close()
    homes: dict[str, set[str]] = {}
    for server in (one, two, three):
        assert server.bodies
        for body in server.bodies:
            prompt = body["messages"][-1]["content"]
            (shard,) = (s for s in range(N) if CONTEXT.read(s) in prompt)
            homes.setdefault(str(shard), set()).add(server.url)
    assert len(homes) == N and all(len(urls) == 1 for urls in homes.values())
    assert (usage.calls, usage.failures, usage.memo_hits) == (5 * N, 0, 0)
    assert usage.shards == {s.index: s.n_tokens for s in CONTEXT.shards}


async def test_identical_calls_are_made_once_and_billed_once() -> None:
    prices = {"prompt": 1.0, "cached": 0.1, "output": 2.0}
    cost = {"prompt_tokens": 1000, "completion_tokens": 10}
    cost["prompt_tokens_details"] = {"cached_tokens": 400}  # type: ignore[assignment]
    async with serve(says({"found": False, "quotes": []}, **cost)) as server:
        pool = build_pool(config(server.url, prices=prices))
        ledgers = [WorkerUsage() for _ in range(8)]
        action = NarrowAction("n1", "Find thing 3.", (0,))
        await asyncio.gather(*(pool.run(action, CONTEXT, usage) for usage in ledgers))
        await pool.run(action, CONTEXT, ledgers[0])
        await pool.close()
    assert len(server.bodies) == 1
    assert sum(usage.calls for usage in ledgers) == 9
    assert sum(usage.memo_hits for usage in ledgers) == 8
    assert sum(usage.prompt_tokens for usage in ledgers) == 1000
    dollars = sum(usage.dollars for usage in ledgers)
    assert dollars == pytest.approx((600 * 1.0 + 400 * 0.1 + 10 * 2.0) / 1e6)
    served = [usage.served_s > 0 for usage in ledgers]
    assert sum(served) == 1


async def test_what_makes_a_call_another_one(tmp_path: Path) -> None:
    async with serve(NOTHING) as server:

        async def asked(instruction: str = "Find it.", **changes: Any) -> int:
            before = len(server.bodies)
            settings = {"cache_mb": 8, "cache_dir": str(tmp_path), **changes}
            worker: Any = build_worker(config(server.url, **settings))
            await worker.scan(instruction, CONTEXT, 0)
            await worker.close()
            return len(server.bodies) - before

        assert await asked() == 1
        assert await asked() == 0  # a new Worker, as in another process: from disk
        assert await asked("Find him.") == 1
        assert await asked(model="other") == 1
        assert await asked(prompts="brief") == 1
        assert await asked(sampling={"temperature": 0.5}) == 1
        assert await asked(memo=0) == 1
        assert await asked() == 0


async def test_machines_that_share_a_folder_have_a_file_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        monkeypatch.setattr("platform.node", lambda name=name: name)
        async with serve(NOTHING) as server:
            settings = {"cache_mb": 8, "cache_dir": str(tmp_path)}
            worker: Any = build_worker(config(server.url, **settings))
            await worker.scan("Find it.", CONTEXT, 0)
            await worker.close()
            assert len(server.bodies) == 1
    assert sorted(path.name for path in tmp_path.glob("*.sqlite")) == ["one.sqlite", "two.sqlite"]


async def test_a_reply_of_no_use_is_billed_and_is_the_workers_doing() -> None:
    reply = says("I think so", prompt_tokens=50, completion_tokens=3)
    async with serve(reply) as server:
        pool = build_pool(config(server.url))
        usage = WorkerUsage()
        output = await pool.run(NarrowAction("n1", "Find it.", (0,)), CONTEXT, usage)
        await pool.close()
    assert len(server.bodies) == 1 and len(output.failures) == 1
    assert (usage.failures, usage.lost, usage.prompt_tokens) == (1, 0, 50)
    assert isinstance(BadReplyError(""), ModelError)


async def test_each_process_counts_on_its_part_of_the_caches() -> None:
    urls = ("http://127.0.0.1:9/v1", "http://127.0.0.1:10/v1")
    worker: Any = build_worker(config(*urls, kv_tokens=8000), 4)
    lanes = [member.lane for member in worker.router._members]
    assert [lane.kv_tokens for lane in lanes] == [1000, 1000]
    assert await worker.kv_tokens() == 8000
    assert [lane.kv_tokens for lane in lanes] == [1000, 1000]
    await worker.close()


async def test_a_held_contexts_shards_are_kept_longer_than_others() -> None:
    other = TextContext("other", CONTEXT.text, CONTEXT.shards)
    action, tokens = NarrowAction("n1", "Find it.", (0,)), sum(s.n_tokens for s in CONTEXT.shards)

    async def asked(**changes: Any) -> list[float]:
        """Seconds for which the server is to keep the shards of CONTEXT and of `other`."""
        async with serve(NOTHING) as server:
            pool = build_pool(config(server.url, memo=0, kv_tokens=3 * tokens, **changes))
            async with pool.admit(CONTEXT), pool.admit(other):
                for context in (CONTEXT, other):
                    await pool.run(action, context, WorkerUsage())
            await pool.close()
        return [body.get("priority", 0) - time.time() for body in server.bodies]

    held, streamed = await asked(hold=0.5, hold_s=60.0)
    assert 50 < held <= 60 and -10 < streamed <= 0
    assert max(await asked()) < -1e6  # not told anything


async def test_an_endpoint_that_reports_no_cache_is_named_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    worker: Any = build_worker(config("http://127.0.0.1:9/v1"))
    assert [await worker.kv_tokens(), await worker.kv_tokens()] == [None, None]
    assert caplog.text.count("http://127.0.0.1:9/v1 reported no KV cache size") == 1
    await worker.close()


@pytest.mark.parametrize("bad", ["I think so", "", '{"found": true, "quotes": [{"te'])
async def test_a_reply_of_no_use_is_not_remembered(bad: str, tmp_path: Path) -> None:
    settings = {"cache_mb": 8, "cache_dir": str(tmp_path)}
    async with serve(says(bad), NOTHING) as server:
        worker: Any = build_worker(config(server.url, **settings))
        with pytest.raises(BadReplyError):
            await worker.scan("Find it.", CONTEXT, 0)
        await worker.close()
        again: Any = build_worker(config(server.url, **settings))
        assert (await again.scan("Find it.", CONTEXT, 0)).quotes == ()
        assert (await again.scan("Find it.", CONTEXT, 0)).memo_hit
        await again.close()
    assert len(server.bodies) == 2


async def test_a_refusal_is_not_retried_and_counts_as_lost() -> None:
    refusal = status(400, {"error": {"message": "maximum context length is 2048"}})
    async with serve(refusal) as one, serve(refusal) as two:
        pool = build_pool(config(one.url, two.url))
        usage = WorkerUsage()
        await pool.run(NarrowAction("n1", "Find it.", (0,)), CONTEXT, usage)
        await pool.close()
    assert len(one.bodies) + len(two.bodies) == 1
    assert (usage.failures, usage.lost, usage.retries) == (1, 1, 0)


async def test_killed_in_the_middle_nothing_is_lost_or_doubled(stubs: list[Stub]) -> None:
    pool = build_pool(config(*(stub.url for stub in stubs), slots=4, eject_after=2))
    usage = WorkerUsage()

    async def ask(i: int) -> tuple[int, list[int]]:
        output = await pool.run(NarrowAction(f"n{i}", f"Find the thing {i:04}."), CONTEXT, usage)
        assert not output.failures
        assert {finding.quote for finding in output.findings} == {f"Find the thing {i:04}."}
        return i, [finding.shard for finding in output.findings]

    async def kill() -> None:
        while stubs[1].counts()["requests"] < 20:
            await asyncio.sleep(0.02)
        stubs[1].kill()

    *got, _ = await asyncio.gather(*(ask(i) for i in range(40)), kill())
    assert got == [(i, list(range(min(N, 16)))) for i in range(40)]
    assert usage.calls == 40 * N and usage.lost == 0 and usage.retries > 0
    # It comes back under its old address, and into service.
    stubs[1] = Stub(stubs[1].port)
    for i in range(40, 200):
        await ask(i)
        if stubs[1].counts()["requests"]:
            break
        await asyncio.sleep(0.02)
    assert stubs[1].counts()["requests"]
    await pool.close()


async def test_while_all_are_down_a_call_waits(stubs: list[Stub]) -> None:
    pool = build_pool(config(stubs[0].url, eject_after=1))
    port = stubs[0].port
    stubs[0].kill()
    usage = WorkerUsage()
    action = NarrowAction("n1", "Find the thing.", (0,))
    call = asyncio.ensure_future(pool.run(action, CONTEXT, usage))
    await asyncio.sleep(0.5)
    assert not call.done() and pool.outage() > 0
    stubs[0] = Stub(port)
    output = await asyncio.wait_for(call, 20)
    assert len(output.findings) == 1 and usage.lost == 0
    await pool.close()
