"""Processes that share a disk cache: one makes a call, the others wait for its reply."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from disco_rl.engine.serving.disk_cache import DiskCache
from disco_rl.engine.serving.leases import Leases
from tests.scripts import SCRIPTS, load

sys.path.insert(0, str(SCRIPTS))
Stub = load("_bench_stubs").Stub
ROOT = SCRIPTS.parent

HOLDER = """
import asyncio, sys, time
from pathlib import Path
from disco_rl.engine.serving.disk_cache import DiskCache
cache = DiskCache(Path(sys.argv[1]), 2**20)
assert asyncio.run(cache.claim("k", 1.0)) is None
print("mine", flush=True)
if sys.argv[2] == "hold":
    time.sleep(600)
time.sleep(0.5)
cache.settle("k", "Oslo" if sys.argv[2] == "answer" else None)
time.sleep(600 if sys.argv[2] == "fail" else 0)
cache.close()
"""


class Holder:
    """A process that has claimed "k" and then answers it, fails, or holds it until killed."""

    def __init__(self, path: Path, then: str):
        command = [sys.executable, "-c", HOLDER, str(path), then]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "mine\n"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "replies.sqlite"


@pytest.fixture
def cache(path: Path) -> Iterator[DiskCache]:
    cache = DiskCache(path, 2**20)
    yield cache
    cache.close()


async def test_a_reply_under_way_elsewhere_is_waited_for(path: Path, cache: DiskCache) -> None:
    holder = Holder(path, "answer")
    assert await cache.claim("k", 60.0) == "Oslo"
    assert await cache.claim("other", 60.0) is None
    holder.kill()


@pytest.mark.parametrize("then", ["fail", "hold"])
async def test_what_fails_or_dies_elsewhere_is_ours_to_make(
    path: Path, cache: DiskCache, then: str
) -> None:
    holder = Holder(path, then)
    if then == "hold":
        assert await cache.claim("k", 0.2) is None  # patience is bounded
        holder.kill()
    began = time.monotonic()
    assert await cache.claim("k", 60.0) is None
    assert time.monotonic() - began < 30.0
    holder.kill()


def test_a_key_is_of_one_process_and_no_other_key_with_it(path: Path, cache: DiskCache) -> None:
    leases = Leases(path.with_suffix(".leases"))
    holder = Holder(path, "hold")
    assert not leases.take("k")
    assert all(leases.take(f"other {i}") for i in range(1000))
    holder.kill()
    assert leases.take("k")
    leases.close()


def test_one_that_is_written_is_given_back(path: Path) -> None:
    holder = Holder(path, "answer")
    holder.process.wait(60)
    leases = Leases(path.with_suffix(".leases"))
    assert leases.take("k")
    leases.close()
    holder.kill()


TRAINER = """
import asyncio, json, sys
from disco_rl.core.plan import NarrowAction
from disco_rl.core.shards import Shard, TextContext
from disco_rl.core.trajectory import WorkerUsage
from disco_rl.engine.workers import build_pool

shards = tuple(Shard(i, i * 40, (i + 1) * 40, 10) for i in range(4))
text = "".join(f"{i} speaks of thing {i}.".ljust(40) for i in range(4))
document = TextContext("doc", text, shards)

async def main():
    config = {"kind": "chat", "url": sys.argv[1], "model": "stub", "cache_dir": sys.argv[2]}
    pool, usage = build_pool(config), WorkerUsage()
    sys.stdin.readline()
    outputs = await asyncio.gather(*(
        pool.run(NarrowAction(f"n{i}", f"Find {i}."), document, usage) for i in range(5)
    ))
    await pool.close()
    finds = [[f.shard, f.quote] for output in outputs for f in output.findings]
    print(json.dumps([finds, usage.calls, usage.memo_hits, usage.output_tokens]))

asyncio.run(main())
"""


def test_two_trainer_processes_pay_every_call_once(tmp_path: Path) -> None:
    stub = Stub(delay=0.5)
    command = [sys.executable, "-c", TRAINER, stub.url, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": ROOT}
    trainers = [subprocess.Popen(command, **pipes) for _ in range(2)]  # type: ignore[call-overload]
    time.sleep(0.1)
    for trainer in trainers:  # both have begun before either asks, or nearly so
        trainer.stdin.write("go\n")
        trainer.stdin.flush()
    results = [json.loads(trainer.communicate(timeout=600)[0]) for trainer in trainers]
    assert stub.requests() == 20
    stub.kill()
    (one, calls, hits, tokens), (two, *rest) = results
    assert one == two and len(one) == 20
    assert calls == rest[0] == 20
    assert hits + rest[1] == 20 and tokens + rest[2] == 20 * 12
