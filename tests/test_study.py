"""The recipe's arithmetic: intervals, the summary and its table. Training is tested elsewhere."""

import importlib.util
import random
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from disco_rl.evaluation.intervals import bootstrap, over_seeds

ROOT = Path(__file__).resolve().parents[1]


def study():
    spec = importlib.util.spec_from_file_location("study", ROOT / "recipes/embedded/study.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def figures(accuracy: list[float]) -> dict:
    one = dict.fromkeys(("accuracy", "reward", "format", "evidence", "plan_valid"), accuracy)
    return one | {"stages": [2.0] * len(accuracy), "calls": [6.0] * len(accuracy)}


def run(accuracy: list[float], **more) -> dict:
    return {"sampled": figures(accuracy), "greedy": figures(accuracy)} | more


def test_bootstrap_covers_the_true_mean_about_95_times_in_100():
    rng = random.Random(0)
    hits = 0
    for trial in range(200):
        low, high = bootstrap([float(rng.random() < 0.3) for _ in range(100)], 400, trial)
        hits += low <= 0.3 <= high
    assert 0.88 <= hits / 200 <= 0.99


def test_interval_over_three_seeds_is_the_textbook_one():
    mean, low, high = over_seeds([0.5, 0.6, 0.7])
    assert mean == pytest.approx(0.6)
    assert high - mean == pytest.approx(4.303 * 0.1 / 3**0.5)
    assert mean - low == pytest.approx(high - mean)


@pytest.mark.parametrize("values", [[], [0.5], [0.5] * 12])
def test_too_few_or_too_many_seeds_are_refused(values):
    with pytest.raises(ValueError, match="values"):
        over_seeds(values)


def test_summary_and_table_hold_the_gain():
    module = study()
    more = {"train_seconds": 10.0, "logprob_diff_max": 1e-6, "optimizer_steps": [1.0, 1.0]}
    curve = {"curve": {key: [[1, 0.5], [2, 0.6]] for key in ("reward", "accuracy")}}
    runs = {
        "before": run([0.0, 0.0, 1.0, 0.0]),
        "grpo_1": run([1.0, 0.0, 1.0, 1.0], **more, **curve),
        "grpo_2": run([1.0, 1.0, 1.0, 0.0], **more, **curve),
        "shuffled": run([0.0, 0.0, 0.0, 1.0], **more, **curve),
    }
    results = module.summary(OmegaConf.create(module.SETTINGS), runs)
    assert results["table"]["gain"]["sampled"]["accuracy"]["mean"] == pytest.approx(0.5)
    assert results["optimizer_steps_a_step"] == [1.0]
    assert results["logprob_diff_max"] == 1e-6
    text = module.with_table("before\n<!-- table -->\nold\n<!-- /table -->\nafter\n", results)
    assert "old" not in text and text.startswith("before") and text.endswith("after\n")
    assert "| **gain** | 0.500 (0.500, 0.500) |" in text


def test_a_finished_run_is_taken_only_where_it_was_made_alike(tmp_path, monkeypatch):
    module = study()
    monkeypatch.setattr(module, "commit", lambda: "a")
    note = tmp_path / "grpo_1_run.json"
    assert module.noted(note, ["data.seed=1"], done=False) == ["a"]
    monkeypatch.setattr(module, "commit", lambda: "b")
    assert module.noted(note, ["data.seed=1"], done=True) == ["a"]  # nothing was run at b
    assert module.noted(note, ["data.seed=1"], done=False) == ["a", "b"]
    with pytest.raises(ValueError, match="set another out"):
        module.noted(note, ["data.seed=2"], done=False)
    assert module.noted(tmp_path / "older.json", ["data.seed=1"], done=True) == []


def trained_once(module, settings, monkeypatch):
    commands = []
    monkeypatch.setattr(module, "disco_rl", lambda *command: commands.append(command))
    monkeypatch.setattr(module, "evaluated", lambda *_: run([1.0]))
    data = {"timing_s/step": 2.0, "disco/logprob_diff_max": 0.0, "disco/train/accuracy": 0.5}
    monkeypatch.setattr("disco_rl.run_folder.read_metrics", lambda _: {1: data})
    return module.trained(settings, "grpo_1", 1, "reward=no_format"), commands


def test_a_run_is_skipped_when_it_is_done_and_goes_on_when_it_is_not(tmp_path, monkeypatch):
    module = study()
    given = {"out": str(tmp_path), "data": "/w/data", "steps": 8}
    settings = OmegaConf.create(module.SETTINGS | given)
    result, commands = trained_once(module, settings, monkeypatch)
    assert [command[0] for command in commands] == ["train", "export"]
    assert {"data.train_files=/w/data/train.parquet", "disco.context_store=/w/data/contexts",
            "trainer.total_training_steps=8", "reward=no_format"} <= set(commands[0])  # fmt: skip
    assert result["train_seconds"] == 2.0 and len(result["commits"]) == 1
    (tmp_path / "grpo_1_model").mkdir()
    again, commands = trained_once(module, settings, monkeypatch)
    assert commands == [] and again["curve"] == result["curve"]


def test_missing_data_says_what_to_make(tmp_path):
    module = study()
    with pytest.raises(ValueError, match="make data"):
        module.begun(module.SETTINGS, [f"data={tmp_path}", f"out={tmp_path}"])


def test_the_shipped_table_is_made_from_the_shipped_results():
    module = study()
    folder = ROOT / "recipes/embedded"
    if not (folder / "results.json").is_file():
        pytest.skip("the study has not been run")
    import json

    text = (folder / "README.md").read_text()
    results = json.loads((folder / "results.json").read_text())
    assert module.with_table(text, results) == text
