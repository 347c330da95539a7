"""verl's own trainer on the CPU, end to end: killed during a step, resumed, finished."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file

from tests.trainer.tiny import write_world

ROOT = Path(__file__).resolve().parents[2]
STEPS = 3
PROGRAM = """
import sys
from disco_rl.config import compose
from disco_rl.trainer.launch import train
train(compose(sys.argv[1:]))
"""


def start(overrides: list[str], folder: Path, name: str) -> subprocess.Popen:
    """The same command each time, in a session of its own, its output in `folder/name.log`."""
    log = (folder / f"{name}.log").open("w")
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *overrides],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "VERL_FILE_LOGGER_PATH": str(folder / f"{name}.jsonl"),
        },
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def weights(folder: Path, step: int) -> dict:
    return load_file(folder / f"checkpoints/global_step_{step}/actor/huggingface/model.safetensors")


def steps(folder: Path, name: str) -> dict[int, dict]:
    lines = (folder / f"{name}.jsonl").read_text().splitlines()
    return {row["step"]: row["data"] for row in map(json.loads, lines)}


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_killed_run_goes_on_from_its_checkpoint_and_finishes(tmp_path):
    overrides = [
        *write_world(tmp_path),
        f"trainer.total_training_steps={STEPS}",
        "trainer.save_freq=1",
        "trainer.max_actor_ckpt_to_keep=null",
        "trainer.logger=[console,file]",
    ]
    tracker = tmp_path / "checkpoints/latest_checkpointed_iteration.txt"

    first = start(overrides, tmp_path, "first")
    try:
        deadline = time.monotonic() + 600
        while not tracker.is_file():
            assert first.poll() is None, (tmp_path / "first.log").read_text()[-3000:]
            assert time.monotonic() < deadline, "no checkpoint in time"
            time.sleep(0.1)
    finally:
        first.send_signal(signal.SIGKILL)
        first.wait()
    killed_after = int(tracker.read_text())
    assert killed_after < STEPS, "the run was over before it could be killed"

    second = start(overrides, tmp_path, "second")
    try:
        code = second.wait(timeout=600)
    finally:
        if second.poll() is None:
            second.send_signal(signal.SIGINT)
    assert code == 0, (tmp_path / "second.log").read_text()[-3000:]

    seen = steps(tmp_path, "second")
    assert sorted(seen) == list(range(killed_after + 1, STEPS + 1))
    for metrics in seen.values():
        assert metrics["training/rollout_probs_diff_max"] < 1e-6
        assert abs(metrics["rollout_corr/kl"]) < 1e-4
        assert math.isfinite(metrics["actor/grad_norm"])
    assert tracker.read_text() == str(STEPS)
    before, after = weights(tmp_path, killed_after), weights(tmp_path, STEPS)
    assert {str(t.dtype) for t in after.values()} == {"torch.float32"}
    assert any((before[name] != after[name]).any() for name in after)

    third = start(overrides, tmp_path, "third")
    assert third.wait(timeout=60) == 0
    assert f"finished: step {STEPS} of {STEPS}" in (tmp_path / "third.log").read_text()
