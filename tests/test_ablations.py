"""The ablations recipe: its arms, arithmetic, table and picture. Training is tested elsewhere."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from disco_rl.config import compose
from disco_rl.rewards import PRESETS, weights_from

ROOT = Path(__file__).resolve().parents[1]


def recipe() -> Any:
    path = ROOT / "recipes/ablations/ablations.py"
    spec = importlib.util.spec_from_file_location("ablations", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(accuracy: float) -> dict[str, Any]:
    shown = recipe().FIGURES
    return {
        "sampled": {figure: [accuracy, accuracy] for figure in shown},
        "greedy": {figure: [0.9] for figure in shown},
        "curve": {"accuracy": [[1, 0.1], [2, accuracy]]},
        "commits": ["0123456789"],
        "train_seconds": 12.3,
    }


def made(full: list[float], less: list[float], seeds: list[int]) -> dict[str, Any]:
    module = recipe()
    runs = {
        "paper": {seed: run(x) for seed, x in zip(seeds, full, strict=False)},
        "no_format": {seed: run(x) for seed, x in zip(seeds, less, strict=False)},
        "no_evidence": {seed: run(x) for seed, x in zip(seeds, full, strict=False)},
    }
    return {"commit": "0123456789"} | module.summary(run(0.2), runs, seeds, {})


@pytest.fixture
def results() -> dict[str, Any]:
    return made([0.5, 0.6, 0.7], [0.4, 0.5, 0.6], [1, 2, 3])


def test_an_arm_is_one_override_at_most() -> None:
    module = recipe()
    for arm in module.ARMS:
        assert weights_from(compose(module.override(arm)).disco.reward) == PRESETS[arm]


def test_the_full_arm_shares_its_runs_with_the_other_recipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = recipe()
    calls: list[tuple[Any, ...]] = []
    monkeypatch.setattr(module.study, "trained", lambda *given: calls.append(given))
    module.study.grpo("settings", 2)
    module.study.trained("settings", module.name("paper", 2), 2, *module.override("paper"))
    assert calls[0] == calls[1]


def test_a_difference_is_paired_by_seed(results: dict[str, Any]) -> None:
    mean, _, high = results["arms"]["no_format"]["accuracy"]
    assert mean == 0.5 and high - mean == pytest.approx(4.303 * 0.1 / 3**0.5, abs=1e-3)
    # Each seed lost exactly 0.1, so the difference is certain though the arms overlap.
    assert results["less_than_full"]["no_format"]["accuracy"] == pytest.approx([-0.1] * 3)
    assert results["less_than_full"]["no_evidence"]["stages"] == [0.0, 0.0, 0.0]
    assert results["complete"] and not results["missing"]


def test_a_difference_takes_only_seeds_that_both_arms_have() -> None:
    module = recipe()
    runs = {"paper": {1: run(0.5), 3: run(0.9)}, "no_format": {2: run(0.1), 3: run(0.8)}}
    assert module.differences(runs)["no_format"]["accuracy"] == [-0.1, None, None]


def test_a_partial_study_says_so() -> None:
    results = made([0.5, 0.6], [0.4], [1, 2])
    assert not results["complete"] and results["missing"] == ["no_format_2"]
    assert results["arms"]["no_format"]["accuracy"] == [0.4, None, None]
    table = recipe().table(results)
    assert "Partial: 5 of 6 runs, without no_format_2. Code: 0123456." in table
    assert "| without format | 0.400 |" in table


def test_table_and_picture(results: dict[str, Any], tmp_path: Path) -> None:
    module = recipe()
    table = module.table(results)
    assert "All 9 runs." in table
    assert "| warm start | 0.200 |" in table and "| without format | 0.500 (" in table
    assert "| **without format, less full** | -0.100 (-0.100, -0.100) |" in table
    pytest.importorskip("matplotlib")
    readme = "head\n<!-- table -->\nold\n<!-- /table -->\ntail\n"
    (tmp_path / "README.md").write_text(readme)
    module.publish(results, tmp_path)
    assert table in (tmp_path / "README.md").read_text()
    assert (tmp_path / "ablations.png").stat().st_size > 10_000
    assert json.loads((tmp_path / "results.json").read_text())["arms"] == results["arms"]


def test_one_failed_run_costs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = recipe()
    for name in ("train.parquet", "config.json"):
        (tmp_path / name).touch()

    def trained(settings: Any, name: str, seed: int, *overrides: str) -> dict[str, Any]:
        if name == "no_format_1":
            raise ValueError("no memory left")
        return run(0.5)

    monkeypatch.setattr(module.study, "trained", trained)
    monkeypatch.setattr(module.study, "evaluated", lambda *_: run(0.2))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTHONPATH", "")
    given = [f"{key}={tmp_path}" for key in ("data", "driver", "report")]
    monkeypatch.setattr("sys.argv", ["x", *given, f"out={tmp_path}/out", "seeds=[1,2]"])
    assert module.main() == 1
    written = json.loads((tmp_path / "results.json").read_text())
    assert written["failed"] == {"no_format_1": "ValueError"}
    assert written["missing"] == ["no_format_1"] and len(written["runs"]) == 5
    assert str(tmp_path) not in json.dumps(written)  # this machine's folders are nobody's business
    assert "no memory left" in capsys.readouterr().err


def test_the_shipped_table_is_made_from_the_shipped_results() -> None:
    folder = ROOT / "recipes/ablations"
    text = (folder / "README.md").read_text()
    if not (folder / "results.json").is_file():
        assert "No run has been made." in text
        return
    module = recipe()
    results = json.loads((folder / "results.json").read_text())
    assert module.study.between_marks(text, module.table(results)) == text
