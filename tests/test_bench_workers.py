"""The Worker benchmark: the replay agrees with what can be counted, and its scripts run."""

import asyncio
import json
import subprocess
import sys
from typing import Any

import pytest
from omegaconf import OmegaConf

from tests.scripts import SCRIPTS, load

sys.path.insert(0, str(SCRIPTS))
replay = load("_bench_replay")
run = load("_virtual_time").run
predicted = load("_bench_real").predicted
CONFIG = SCRIPTS.parent / "recipes" / "workers" / "replay.yaml"


def config(**changes: Any) -> Any:
    small = {"questions": 2, "trajectories": 2, "lengths": [16384], "endpoints": 2, "kv_share": 9.0}
    return OmegaConf.merge(OmegaConf.load(CONFIG), OmegaConf.create({**small, **changes}))


def step(settings: Any, name: str) -> dict[str, Any]:
    questions = replay.workload(settings)
    (arm,) = (arm for arm in replay.arms(settings) if arm.name == name)
    return run(replay.step(settings, questions, arm))


def calls(settings: Any) -> int:
    return sum(
        len(stage.instructions) * len(question.shards)
        for question in replay.workload(settings)
        for stages in question.trajectories
        for stage in stages
    )


def test_naive_computes_every_call_and_ours_every_shard_once() -> None:
    settings = config()
    n, shards = calls(settings), 2 * 4 * 4096
    naive = step(settings, "naive")
    assert naive["computed_tokens"] == n * (4096 + 25) and naive["calls_served"] == n
    gated = step(settings, "affinity + gate")
    assert gated["computed_tokens"] == shards + n * 25 and gated["calls_served"] == n
    memo = step(settings, "+ memo")
    assert memo["calls_served"] < n
    assert memo["computed_tokens"] == shards + memo["calls_served"] * 25


def test_no_step_is_faster_than_the_bound() -> None:
    settings = config()
    least = replay.bound(settings, replay.workload(settings))["bound_s"]
    for name in ("naive", "+ memo", "+ admission + host cache"):
        assert step(settings, name)["step_s"] >= least


def test_a_small_cache_costs_reads_and_admission_saves_them() -> None:
    settings = config(questions=8, kv_share=0.25, overcommit=[1.0])
    open_door = step(settings, "+ memo")
    admitted = step(settings, "+ admission x1")
    assert admitted["computed_tokens"] < open_door["computed_tokens"]


def results() -> dict[str, Any]:
    return json.loads((CONFIG.parent / "results.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("size", "arm"),
    [(s, a) for s, real in results()["real"].items() for a in ("ours", "naive") if a in real],
)
def test_the_replay_agrees_with_real_servers(size: str, arm: str) -> None:
    """What `bench_workers.py real` measured on llama.cpp, and what the replay says of the same."""
    real = results()["real"][size]
    assert predicted(real, arm) == pytest.approx(real[arm]["computed_tokens"], rel=0.1)


def test_the_workload_repeats() -> None:
    assert replay.workload(config()) == replay.workload(config())
    assert replay.workload(config()) != replay.workload(config(seed=1))


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        (["soak", "--seconds", "2", "--clients", "6"], {"before", "during", "after", "lost"}),
        (
            ["overhead", "--calls", "100", "--rounds", "1"],
            {"calls_per_cpu_second", "ours_over_aiohttp", "ours_disk_cache_over_aiohttp"},
        ),
        (["overhead", "--queued", "500"], {"calls", "waiting", "queue_mb", "peak_mb"}),
    ],
)
def test_the_scripts_run(words: list[str], keys: set[str]) -> None:
    script = str(SCRIPTS / "bench_workers.py")
    done = subprocess.run(
        [sys.executable, script, *words], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert keys <= set(result)
    if words[0] == "soak":
        for fault in ("lost", "doubled", "wrong", "unexplained_requests"):
            assert result[fault] == 0, fault
        assert all(result[phase]["calls"] > 0 for phase in ("before", "during", "after"))
        assert min(result["served_after"]) > 0  # the killed and the slowed one are back


def test_a_replay_that_hangs_says_so() -> None:
    async def hangs() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(RuntimeError, match="no timer brings"):
        run(hangs())
