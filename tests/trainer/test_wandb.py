"""What an offline wandb run keeps: every metric that the code and the documents name.

A run on the CPU with wandb is scripts/rehearse.py, which compares it with the file logger's lines.
"""

import re
from pathlib import Path

import pytest

from disco_rl.trainer.metrics import names
from tests import scripts

pytest.importorskip("wandb", reason="wandb comes with the extra `train`")

ROOT = Path(__file__).resolve().parents[2]
METRICS = sorted(names("train").keys() | names("val").keys())
_NAMED = re.compile(r"`(disco/[\w/*.]+)`")


def documented() -> set[str]:
    """Metrics named in full by README, docs and recipes; `NAME` stands for any."""
    pages = [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("recipes/*/*.md")]
    return {name for page in pages for name in _NAMED.findall(page.read_text(encoding="utf-8"))}


def test_documents_name_metrics_that_there_are() -> None:
    found = documented()
    assert found
    for name in found:
        pattern = re.escape(name).replace("NAME", r"[\w/]+").replace(r"\*", r"[\w/]+")
        assert any(re.fullmatch(pattern, known) for known in METRICS), name


def test_every_metric_is_in_the_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through verl's own logger into wandb's file, and back."""
    import wandb
    from verl.utils.tracking import Tracking

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_SILENT", "true")
    logged = {
        step: {name: step + number / 1000 for number, name in enumerate(METRICS)} for step in (1, 2)
    }
    tracking = Tracking("disco-rl", "test", ["wandb"], config={"trainer": {}})
    for step, values in logged.items():
        tracking.log(data=values, step=step)
    tracking.finish(exit_code=0)
    wandb.teardown()  # its service writes the end of the file after `finish` has returned
    (run,) = (tmp_path / "wandb").glob("offline-run-*")
    history = scripts.load("_wandb_history").history(run)
    assert sorted(history) == [1, 2]
    for step, values in logged.items():
        assert {name: history[step][name] for name in METRICS} == pytest.approx(values)
    (file,) = run.glob("run-*.wandb")
    content = file.read_bytes()
    for size in range(len(content) // 2, len(content), 997):  # cut anywhere, it can be read
        file.write_bytes(content[:size])
        cut = scripts.load("_wandb_history").history(run)
        assert all(history[step] == row for step, row in cut.items())


def test_a_folder_that_is_no_run_is_named(tmp_path: Path) -> None:
    history = scripts.load("_wandb_history").history
    with pytest.raises(ValueError, match="holds 0 files"):
        history(tmp_path)
    (tmp_path / "run-1.wandb").write_bytes(b"something else")
    with pytest.raises(ValueError, match="doesn't begin"):
        history(tmp_path)
