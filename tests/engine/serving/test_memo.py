"""Identical calls in flight are made once; replies on disk are shared, bounded and never missed."""

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest

from disco_rl.engine.serving.disk_cache import DiskCache
from disco_rl.engine.serving.memo import Flights
from tests.scripts import load

run = load("_virtual_time").run


class Counted:
    def __init__(self) -> None:
        self.made = 0

    async def make(self) -> int:
        self.made += 1
        await asyncio.sleep(1.0)
        return self.made


def test_calls_of_a_key_under_way_are_one_and_billed_once() -> None:
    async def main() -> None:
        flights, counted = Flights[int](), Counted()
        got = await asyncio.gather(*(flights.join("k", counted.make) for _ in range(5)))
        assert [result for result, _ in got] == [1] * 5
        assert sorted(billed for _, billed in got) == [False] * 4 + [True]
        assert await flights.join("other", counted.make) == (2, True)
        assert await flights.join("k", counted.make) == (3, True)  # done, and no memory of its own

    run(main())


def test_one_that_goes_away_leaves_the_call_to_the_others() -> None:
    async def main() -> None:
        flights, counted = Flights[int](), Counted()
        calls = [asyncio.ensure_future(flights.join("k", counted.make)) for _ in range(3)]
        await asyncio.sleep(0.5)
        calls[0].cancel()
        assert await calls[1] == (1, True) and await calls[2] == (1, False)
        assert calls[0].cancelled()

    run(main())


def test_a_call_that_nobody_waits_for_ends_and_the_next_begins_anew() -> None:
    async def main() -> None:
        flights, counted = Flights[int](), Counted()
        calls = [asyncio.ensure_future(flights.join("k", counted.make)) for _ in range(2)]
        await asyncio.sleep(0.5)
        for call in calls:
            call.cancel()
        await asyncio.sleep(0)
        assert await flights.join("k", counted.make) == (2, True)
        await asyncio.gather(*calls, return_exceptions=True)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(main())


def test_a_failure_is_everyones_and_is_not_kept() -> None:
    async def main() -> None:
        flights = Flights[int]()

        async def fail() -> int:
            await asyncio.sleep(1.0)
            raise ValueError("no")

        got = await asyncio.gather(
            *(flights.join("k", fail) for _ in range(3)), return_exceptions=True
        )
        assert [str(error) for error in got] == ["no"] * 3
        assert (await flights.join("k", Counted().make))[0] == 1

    run(main())


def test_a_reply_is_there_at_once_and_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "replies.sqlite"
    cache = DiskCache(path, 2**20)
    cache.put("k", "Zürich")
    assert cache.get("k") == "Zürich" and cache.get("other") is None
    cache.close()
    again = DiskCache(path, 2**20)
    assert again.get("k") == "Zürich"
    again.close()


def test_several_processes_share_it(tmp_path: Path) -> None:
    path = tmp_path / "replies.sqlite"
    code = """
import sys
from pathlib import Path
from disco_rl.engine.serving.disk_cache import DiskCache
cache = DiskCache(Path(sys.argv[1]), 2**24)
for i in range(500):
    cache.put(f"{sys.argv[2]} {i}", f"reply {i}")
cache.close()
"""
    root = Path(__file__).resolve().parents[3]
    mine = DiskCache(path, 2**24)
    writers = [
        subprocess.Popen([sys.executable, "-c", code, str(path), name], cwd=root)
        for name in ("a", "b", "c")
    ]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    assert all(mine.get(f"{name} {i}") == f"reply {i}" for name in "abc" for i in range(500))
    mine.close()


def test_its_size_is_bounded_and_the_oldest_go_first(tmp_path: Path) -> None:
    path = tmp_path / "replies.sqlite"
    bound = 400_000
    for part in range(4):
        cache = DiskCache(path, bound)
        for i in range(500):
            cache.put(f"{part} {i}", "x" * 500)
        cache.close()
    assert path.stat().st_size < 2 * bound
    cache = DiskCache(path, bound)
    kept = [cache.get(f"{part} 499") is not None for part in range(4)]
    assert kept[-1] and not kept[0] and kept == sorted(kept)
    cache.close()


def test_a_disk_that_refuses_costs_only_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    cache = DiskCache(tmp_path / "file" / "replies.sqlite", 2**20)
    cache.put("k", "v")
    assert cache.get("k") is None
    cache.close()
    (tmp_path / "broken.sqlite").write_bytes(b"not a database" * 1000)
    cache = DiskCache(tmp_path / "broken.sqlite", 2**20)
    cache.put("k", "v")
    time.sleep(0.01)
    cache.close()
    assert caplog.text.count("set worker.cache_dir") == 2
