"""A whole training run: verl's trainer with ours in it, a real rollout server, real updates."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from disco_rl.trainer.metrics import names

ROOT = Path(__file__).resolve().parents[2]
STEPS = 3
GROUPS, SESSIONS, CALLS = 4, 4, 2  # of a random model: a plan and its repair, both refused


def launch(folder: Path) -> tuple[str, list[dict[str, Any]]]:
    """Output and logged metrics of one run of the world in `folder`."""
    log = folder / "metrics.jsonl"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.trainer.e2e_world",
            str(folder),
            f"trainer.total_training_steps={STEPS}",
            f"trainer.save_freq={STEPS}",
            "trainer.test_freq=1",
        ],
        cwd=ROOT,
        env={**os.environ, "VERL_FILE_LOGGER_PATH": str(log), "RAY_worker_niceness": "0"},
        capture_output=True,
        text=True,
        timeout=850,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    lines = log.read_text().splitlines() if log.exists() else []
    return done.stdout, [json.loads(line) for line in lines]


@pytest.mark.slow
def test_a_run_updates_once_a_step_and_ends(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    _, log = launch(folder)
    assert [entry["step"] for entry in log] == list(range(1, STEPS + 1))
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
    for split, count in (("train", GROUPS * SESSIONS), ("val", 4)):
        for step in range(1, STEPS + 1):
            records = (folder / "records" / split / f"{step:06d}.jsonl").read_text().splitlines()
            assert len(records) == count

    before = optimizer.stat().st_mtime_ns
    output, _ = launch(folder)
    assert f"finished: step {STEPS} of {STEPS}" in output
    assert optimizer.stat().st_mtime_ns == before
