"""`disco-rl doctor`: every failure comes with its remedy, and a check that breaks is a failure."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf

from data_pipeline.writer import write_rows, write_store
from disco_rl import cli
from disco_rl.commands import checks, doctor
from disco_rl.commands.checks import Finding, Level
from disco_rl.core.shards import Shard
from disco_rl.data import StoreInfo
from tests.rewards.build import sample


@pytest.fixture
def world(tmp_path: Path) -> DictConfig:
    """Rows of two shards, their store, and a model folder."""
    shards = (Shard(0, 0, 4, 2), Shard(1, 4, 8, 2))
    write_store(tmp_path / "contexts", iter([("c1", "one two.", shards)]), StoreInfo("words", 2))
    rows = [sample((f"Name {i}",), gold=(), index=i, n_shards=2) for i in range(3)]
    write_rows(tmp_path / "rows.parquet", rows)
    model = tmp_path / "model"
    model.mkdir()
    for name in (
        "config.json",
        "tokenizer_config.json",
        "model.safetensors",
        "chat_template.jinja",
    ):
        (model / name).write_text("{}")
    return OmegaConf.create(
        {
            "data": {"train_files": str(tmp_path / "rows.parquet"), "val_files": []},
            "disco": {
                "context_store": str(tmp_path / "contexts"),
                "reward": {"accuracy": 1, "format": 0.5, "evidence": 0.5, "gate_floor": None},
            },
            "judge": {"name": "match"},
            "actor_rollout_ref": {"model": {"path": str(model)}},
        }
    )


def levels(findings: Iterator[Finding]) -> list[Level]:
    return [finding.level for finding in findings]


def test_a_ready_world_passes(world: DictConfig) -> None:
    assert levels(checks.data(world)) == [Level.OK, Level.OK]
    assert levels(checks.model(world)) == [Level.OK]
    (reward,) = checks.reward(world)
    assert "gold answers right 1.00" in reward.detail


def test_a_failed_reward_check_that_is_not_enforced_warns(world: DictConfig) -> None:
    world.disco.reward.accuracy = 0
    world.disco.reward_check = {"enforce": False}
    (finding,) = checks.reward(world)
    assert finding.level is Level.WARN and finding.remedy
    assert finding.detail.startswith("FAILED") and "not enforced: " in finding.detail


def test_rows_that_do_not_fit_their_store_fail(world: DictConfig, tmp_path: Path) -> None:
    rows = [
        sample(("A",), gold=((1,),), index=0, n_shards=3),  # another cut
        sample(("B",), gold=((7,),), index=1, n_shards=2),  # evidence outside
    ]
    write_rows(tmp_path / "bad.parquet", rows)
    world.data.val_files = [str(tmp_path / "bad.parquet")]
    bad = list(checks.data(world))[-1]
    assert bad.level is Level.FAIL and bad.remedy
    assert "row 0 says 3 shards, the store 2" in bad.detail
    assert "row 1 has evidence in shards [7] of 2" in bad.detail


@pytest.mark.parametrize("gone", ["config.json", "model.safetensors", "chat_template.jinja"])
def test_an_incomplete_model_fails_by_name(world: DictConfig, gone: str) -> None:
    folder = Path(world.actor_rollout_ref.model.path)
    (folder / gone).unlink()
    (finding,) = checks.model(world)
    named = {"model.safetensors": "weights", "chat_template.jinja": "chat template"}.get(gone, gone)
    assert finding.level is Level.FAIL and named in finding.detail and finding.remedy


def test_a_hub_name_warns_and_a_wrong_path_fails(world: DictConfig) -> None:
    world.actor_rollout_ref.model.path = "Qwen/Qwen3-8B"
    assert levels(checks.model(world)) == [Level.WARN]
    world.actor_rollout_ref.model.path = "/nowhere/model"
    assert levels(checks.model(world)) == [Level.FAIL]


def test_packages_outside_of_their_ranges_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = [
        "numpy<1",
        "no-such-package>=2",
        "pytest; extra == 'test'",
        "torch>=1; extra=='train'",
    ]
    monkeypatch.setattr(checks.importlib.metadata, "requires", lambda name: wanted)
    found = list(checks.packages())
    failed = [f for f in found if f.level is Level.FAIL]
    assert len(failed) == 2 and all(f.remedy for f in failed)
    assert "numpy" in failed[0].detail and "no-such-package is missing" in failed[1].detail


def test_a_module_that_does_not_import_fails() -> None:
    (finding,) = checks.imports("no_such_module")
    assert finding.level is Level.FAIL and "no_such_module" in finding.detail and finding.remedy


def test_little_memory_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "memory_bytes", lambda: 1e9)
    found = {finding.name: finding for finding in checks.machine()}
    assert found["memory"].level is Level.WARN and found["memory"].remedy


def test_exit_code_and_report(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> Iterator[Finding]:
        raise RuntimeError("out of order")
        yield

    monkeypatch.setattr(checks, "packages", broken)
    assert cli.main(["doctor", "--no-imports", "disco.context_store=/nowhere"]) == 1
    shown = capsys.readouterr().out
    assert "RuntimeError: out of order" in shown  # a check that breaks doesn't end the others
    assert "/nowhere: no such context store" in shown and "-> " in shown
    assert "0 failed" not in shown

    fine = Finding(Level.WARN, "a", "b", "c")
    monkeypatch.setattr(doctor, "findings", lambda overrides, imports: iter([fine]))
    assert cli.main(["doctor"]) == 0
    assert "0 failed, 1 warnings" in capsys.readouterr().out


def test_a_mistyped_override_is_a_failed_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", "--no-imports", "judge=mtach"]) == 1
    assert "did you mean judge=match" in capsys.readouterr().out
