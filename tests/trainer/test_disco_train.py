"""A whole run of our trainer: real rollout server, real updates, killed, resumed, finished."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from disco_rl.trainer.metrics import names

ROOT = Path(__file__).resolve().parents[2]
STEPS = 3
GROUPS, SESSIONS, CALLS = 4, 4, 2  # of a random model: a plan and its repair, both refused


def start(folder: Path, name: str) -> subprocess.Popen:
    """The same command each time: a run of the world in `folder`, its output in `name`.log."""
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.trainer.e2e_world",
            str(folder),
            f"trainer.total_training_steps={STEPS}",
            "trainer.save_freq=1",
            "trainer.test_freq=1",
        ],
        cwd=ROOT,
        env={
            **os.environ,
            "VERL_FILE_LOGGER_PATH": str(folder / f"{name}.jsonl"),
            "RAY_worker_niceness": "0",
        },
        stdout=(folder / f"{name}.log").open("w"),
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def output(folder: Path, name: str) -> str:
    return (folder / f"{name}.log").read_text()


def killed_during_a_step(folder: Path) -> int:
    """Starts a run and kills it, by SIGKILL, in the step after its first checkpoint's."""
    tracker = folder / "checkpoints" / "latest_checkpointed_iteration.txt"
    run = start(folder, "first")
    try:
        deadline = time.monotonic() + 1200
        while not (tracker.is_file() and tracker.read_text().strip()):  # opened, then written
            assert run.poll() is None, output(folder, "first")[-6000:]
            assert time.monotonic() < deadline, "no checkpoint in time"
            time.sleep(0.05)
    finally:
        run.send_signal(signal.SIGKILL)
        run.wait()
    return int(tracker.read_text())


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_killed_run_resumes_updates_once_a_step_and_ends(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    killed_after = killed_during_a_step(folder)
    assert killed_after < STEPS, "the run was over before it could be killed"
    second = start(folder, "second")
    try:
        code = second.wait(timeout=1200)
    finally:
        if second.poll() is None:
            second.send_signal(signal.SIGINT)
    assert code == 0, output(folder, "second")[-6000:]
    log = [json.loads(line) for line in (folder / "second.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in log] == list(range(killed_after + 1, STEPS + 1))
    for entry in log:
        metrics = entry["data"]
        ours = {name for name in metrics if name.startswith("disco/")}
        assert ours <= set(names("train")) | set(names("val"))
        assert metrics["disco/optimizer_steps"] == 1
        assert metrics["disco/rows"] == GROUPS * (SESSIONS - 1) * CALLS + GROUPS
        assert metrics["disco/rows_padding"] == 0
        assert metrics["disco/train/trajectories"] == GROUPS * SESSIONS
        assert metrics["disco/train/masked_count"] == GROUPS
        assert metrics["disco/train/calls"] == CALLS
        assert metrics["disco/train/stop/invalid_call"] == 1.0
        assert metrics["disco/val/trajectories"] == 4 and metrics["disco/val/masked_count"] == 0
        assert metrics["actor/grad_norm"] > 0
    assert 0 < log[-1]["data"]["disco/logprob_diff_max_run"] < 1e-4
    checkpoint = folder / "checkpoints" / f"global_step_{STEPS}" / "actor"
    (optimizer,) = checkpoint.glob("optim_*.pt")
    state = torch.load(optimizer, weights_only=False)["state"]
    assert {int(entry["step"]) for entry in state.values()} == {STEPS}  # Adam's own count
    # A step is saved before it is validated, so the kill may cost its validation.
    for split, first, count in (("train", 1, GROUPS * SESSIONS), ("val", killed_after + 1, 4)):
        for step in range(first, STEPS + 1):
            records = (folder / "records" / split / f"{step:06d}.jsonl").read_text().splitlines()
            assert len(records) == count

    before = optimizer.stat().st_mtime_ns
    third = start(folder, "third")
    assert third.wait(timeout=600) == 0
    assert f"finished: step {STEPS} of {STEPS}" in output(folder, "third")
    assert optimizer.stat().st_mtime_ns == before
