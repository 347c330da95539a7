"""The ablations recipe: its arms, arithmetic, table and picture. Training is tested elsewhere."""

import importlib.util
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
    figures = ("accuracy", "evidence", "format", "plan_valid", "retries", "stages", "calls")
    return {
        "sampled": {figure: [accuracy, accuracy] for figure in figures},
        "curve": {"accuracy": [[1, 0.1], [2, accuracy]]},
    }


@pytest.fixture
def results() -> dict[str, Any]:
    module = recipe()
    full = [run(x) for x in (0.5, 0.6, 0.7)]
    less = [run(x) for x in (0.4, 0.5, 0.6)]
    arms = {"paper": full, "no_format": less, "no_evidence": full}
    return {
        "before": dict.fromkeys(module.FIGURES, 0.2),
        "arms": {arm: module.over_arms(runs) for arm, runs in arms.items()},
        "less_than_full": module.differences(arms),
        "curves": {arm: [r["curve"] for r in runs] for arm, runs in arms.items()},
    }


def test_an_arm_is_one_override() -> None:
    for arm in recipe().ARMS:
        assert weights_from(compose([f"reward={arm}"]).disco.reward) == PRESETS[arm]


def test_a_difference_is_paired_by_seed(results: dict[str, Any]) -> None:
    mean, _, high = results["arms"]["no_format"]["accuracy"]
    assert mean == 0.5 and high - mean == pytest.approx(4.303 * 0.1 / 3**0.5, abs=1e-3)
    # Each seed lost exactly 0.1, so the difference is certain though the arms overlap.
    assert results["less_than_full"]["no_format"]["accuracy"] == pytest.approx([-0.1] * 3)
    assert results["less_than_full"]["no_evidence"]["stages"] == [0.0, 0.0, 0.0]


def test_table_and_picture(results: dict[str, Any], tmp_path: Path) -> None:
    module = recipe()
    table = module.table(results)
    assert "| warm start | 0.200 |" in table and "| without format | 0.500 (" in table
    assert "| **without format, less full** | -0.100 (-0.100, -0.100) |" in table
    readme = (ROOT / "recipes/ablations/README.md").read_text()
    assert table in module.study.between_marks(readme, table)
    pytest.importorskip("matplotlib")
    module.plot(results, tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 10_000
