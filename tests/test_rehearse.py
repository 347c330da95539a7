"""The rehearsal of the paper's runs: one of them for real, and what its checks see."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import scripts

ROOT = Path(__file__).resolve().parents[1]


def test_the_stand_in_judge_says_what_the_match_judge_says() -> None:
    import asyncio

    from disco_rl.rewards import Verdict
    from tests.rewards.endpoint import judge_at

    async def ask(url: str) -> list[Verdict]:
        judge = judge_at(url)
        try:
            return [
                await judge.verdict("Where?", ["Tessa"], "tessa."),
                await judge.verdict("Where?", ["Tessa"], "Oum"),
                await judge.supports("Where?", "Tessa", ["She was born in Tessa."]),
                await judge.supports("Where?", "Tessa", ["The river is cold."]),
            ]
        finally:
            await judge.close()

    with scripts.load("_stand_in_judge").judging() as url:
        found = asyncio.run(ask(url))
    assert found == [Verdict.YES, Verdict.NO, Verdict.YES, Verdict.NO]


def test_what_a_run_has_not_left_is_told(tmp_path: Path) -> None:
    told = scripts.load("rehearse").missing(tmp_path, {}, "sync")
    assert "metrics of steps []" in told and "no validation" in told
    assert "no exported model" in told and "0 offline wandb runs" in told
    assert "in step 2 no Worker read anything" in told


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_the_8b_run_in_small(tmp_path: Path) -> None:
    """Worker by llama.cpp, judge by HTTP, wandb, two steps, checkpoint, export."""
    pytest.importorskip("xllamacpp", reason="no llama.cpp: pip install xllamacpp")
    if not (ROOT / "data" / "embedded" / "driver" / "manifest.json").is_file():
        pytest.skip("no embedded Driver: make data driver")
    out = tmp_path / "out"
    log = tmp_path / "log"
    run = subprocess.Popen(
        [sys.executable, "scripts/rehearse.py", "--out", str(out), "--port", "8399"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "DISCO_CACHE": str(tmp_path / "cache")},
        stdout=log.open("w"),
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        code = run.wait(timeout=1400)
    finally:
        if run.poll() is None:
            run.send_signal(signal.SIGINT)
            run.wait(timeout=60)
    folder = out / "qwen3_8b-sync-1x1"
    train = folder / "log"
    assert code == 0, log.read_text() + (train.read_text()[-4000:] if train.is_file() else "")
    (done,) = json.loads((out / "rehearsal.json").read_text())
    assert done["problems"] == [] and len(done["step_s"]) == 2
    assert done["worker_calls"] > 0 and done["worker_prompt_tokens"] > 0
    assert done["logprob_diff_max"] < 1e-4
