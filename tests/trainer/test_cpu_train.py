"""verl's own trainer on our CPU plugin, end to end: what the step bench compares ours
with. Kill and resume are tested with our trainer, in test_disco_train.py."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from tests.trainer.tiny import write_world

ROOT = Path(__file__).resolve().parents[2]
STEPS = 2
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
@pytest.mark.timeout(1800)
def test_the_stock_trainer_runs_on_the_cpu_plugin(tmp_path):
    overrides = [
        *write_world(tmp_path),
        f"trainer.total_training_steps={STEPS}",
        "trainer.save_freq=1",
        "trainer.max_actor_ckpt_to_keep=null",
        "trainer.logger=[console,file]",
    ]
    run = start(overrides, tmp_path, "run")
    try:
        code = run.wait(timeout=1500)
    finally:
        if run.poll() is None:
            run.send_signal(signal.SIGINT)
    assert code == 0, (tmp_path / "run.log").read_text()[-3000:]

    seen = steps(tmp_path, "run")
    assert sorted(seen) == list(range(1, STEPS + 1))
    for metrics in seen.values():
        assert metrics["training/rollout_probs_diff_max"] < 1e-6
        assert abs(metrics["rollout_corr/kl"]) < 1e-4
        assert math.isfinite(metrics["actor/grad_norm"])
    before, after = weights(tmp_path, 1), weights(tmp_path, STEPS)
    assert {str(t.dtype) for t in after.values()} == {"torch.float32"}
    assert any((before[name] != after[name]).any() for name in after)
