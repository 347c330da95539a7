"""Verdicts in memory and on disk; the judge's own tests say what is kept under which key."""

from pathlib import Path

import pytest

from disco_rl.engine.serving.disk_cache import DiskCache
from disco_rl.rewards import Verdict
from disco_rl.rewards.memory import VerdictMemory

YES, NO = Verdict.YES, Verdict.NO


def test_the_least_lately_used_is_dropped() -> None:
    memory = VerdictMemory(2, None, 64)
    memory.put("a", YES)
    memory.put("b", NO)
    assert memory.get("a") is YES
    memory.put("c", NO)
    assert (memory.get("a"), memory.get("b"), memory.get("c")) == (YES, None, NO)


def test_what_memory_dropped_the_disk_still_has(tmp_path: Path) -> None:
    memory = VerdictMemory(1, tmp_path, 1)
    memory.put("a", YES)
    memory.put("b", NO)
    assert (memory.get("a"), memory.get("b")) == (YES, NO)
    memory.close()
    assert memory.get("a") is YES  # closed, it opens again


@pytest.mark.parametrize(("size", "megabytes"), [(0, 64), (9, 0)])
def test_none_of_either_writes_no_file(tmp_path: Path, size: int, megabytes: int) -> None:
    memory = VerdictMemory(size, tmp_path, megabytes)
    memory.put("a", YES)
    assert memory.get("a") is (YES if size else None)
    memory.close()
    assert not list(tmp_path.iterdir())


def test_a_text_that_is_no_verdict_is_none(tmp_path: Path) -> None:
    memory = VerdictMemory(9, tmp_path, 1)
    assert memory.get("a") is None
    (file,) = tmp_path.glob("*.sqlite")
    foreign = DiskCache(file, 2**20)
    foreign.put("a", "maybe")
    foreign.close()
    assert memory.get("a") is None
    memory.close()


def test_a_folder_that_refuses_costs_no_verdict(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    memory = VerdictMemory(9, tmp_path / "file", 1)
    memory.put("a", YES)
    assert memory.get("a") is YES and memory.get("b") is None
    memory.close()
    assert caplog.text.count("set judge.cache_dir") == 1
