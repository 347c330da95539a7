"""Killed and started again, here and for real; in pools and under Ray: the same bytes."""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from data_pipeline.__main__ import main
from data_pipeline.lines import Backend, ordered, run_lines
from data_pipeline.steps.run import run
from disco_rl.trainer.launch import start_ray
from tests.data_pipeline.pipeline import ROOT, hashes, overrides, quiet, typed


class Killed(BaseException):
    """Nothing of ours catches it, as nothing catches a kill."""


def test_killed_again_and_again_it_ends_with_the_same_bytes(
    built: Path, inputs: Path, tmp_path: Path
) -> None:
    settings, rng, n_kills = typed(overrides(inputs, tmp_path / "out")), random.Random(5), 0

    def progress(name: str, n_done: int) -> None:
        if n_done and rng.random() < 0.1:
            raise Killed

    while True:
        try:
            run(settings, "dataset", progress)
            break
        except Killed:
            n_kills += 1
            for file in (tmp_path / "out").glob("[a-z]*.jsonl"):
                manifest = tmp_path / "out" / f"{file.stem}.json"
                if manifest.is_file() and '"complete": false' in manifest.read_text():
                    with file.open("ab") as torn:
                        torn.write(b'{"id": "half a li')
        assert n_kills < 300
    assert n_kills > 5
    assert hashes(tmp_path / "out") == hashes(built)


def command(words: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "data_pipeline", "all", *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": str(random.randrange(1000))},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_killed_for_real(built: Path, inputs: Path, tmp_path: Path) -> None:
    words = overrides(inputs, tmp_path / "out", "workers=1")
    for seconds in (1.5, 3.0, 4.5):
        process = command(words)
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    done = command(words)
    output, errors = done.communicate()
    assert done.returncode == 0 and errors == "", errors
    assert "12 questions" in output and "train: samples" in output
    assert hashes(tmp_path / "out" / "dataset") == hashes(built / "dataset")


def test_a_rerun_does_nothing_and_changed_settings_are_refused(
    built: Path, inputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    times = {file: file.stat().st_mtime_ns for file in built.rglob("*")}
    assert main(["all", *overrides(inputs, built)]) == 0
    assert {file: file.stat().st_mtime_ns for file in built.rglob("*")} == times
    assert main(["all", *overrides(inputs, built, "expansion.breadth=3")]) == 2
    assert "made with other settings, or from other input (breadth)" in capsys.readouterr().err


def double(value: int) -> int:
    return 2 * value


@pytest.mark.parametrize("backend", [Backend(), Backend("thread", 3), Backend("process", 2)])
def test_backends_keep_the_order(backend: Backend) -> None:
    assert list(ordered(double, range(30), backend)) == [2 * k for k in range(30)]


@pytest.mark.slow
def test_ray_gives_the_same(built: Path, inputs: Path, tmp_path: Path) -> None:
    ray = pytest.importorskip("ray")
    start_ray(num_cpus=2, include_dashboard=False, logging_level="ERROR")
    try:
        run(typed(overrides(inputs, tmp_path / "out", "backend=ray")), "dataset", quiet)
    finally:
        ray.shutdown()
    assert hashes(tmp_path / "out") == hashes(built)


def test_a_failing_item_stops_the_step_and_the_rest_goes_on_later(tmp_path: Path) -> None:
    def work(value: int) -> dict[str, int]:
        if value == 3 and not (tmp_path / "fixed").exists():
            raise OSError("server down")
        return {"value": value}

    with pytest.raises(OSError, match="server down"):
        run_lines(tmp_path, "step", {"a": 1}, range(6), work)
    (tmp_path / "fixed").touch()
    manifest = run_lines(tmp_path, "step", {"a": 1}, range(6), work, count=lambda v: ["seen"])
    assert manifest["lines"] == 6 and manifest["counts"] == {"seen": 6}
    lines = (tmp_path / "step.jsonl").read_bytes()
    assert [json.loads(line)["value"] for line in lines.splitlines()] == list(range(6))
    assert manifest["sha256"] == hashlib.sha256(lines).hexdigest()
    with pytest.raises(ValueError, match=r"other input \(a\); remove step\.json there"):
        run_lines(tmp_path, "step", {"a": 2}, range(3), work)
    (tmp_path / "step.json").unlink()  # as it says: lines of other settings aren't taken over
    assert run_lines(tmp_path, "step", {"a": 2}, range(2), work)["lines"] == 2
