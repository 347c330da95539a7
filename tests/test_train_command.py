"""`disco-rl train` up to the launch: inputs, the step's size, the reward check, wandb, the run."""

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from omegaconf import OmegaConf

from disco_rl import cli, run_folder
from disco_rl.commands import step_plan
from disco_rl.commands.train import wandb_environment
from disco_rl.core.sample import Sample
from disco_rl.trainer import launch
from tests.rewards.build import sample


def write_rows(path: Path, samples: list[Sample]) -> Path:
    pq.write_table(pa.Table.from_pylist([s.to_row() for s in samples]), path)
    return path


@pytest.fixture
def inputs(tmp_path: Path) -> list[str]:
    """Overrides that name rows, a store and a model folder which exist."""
    rows = write_rows(
        tmp_path / "rows.parquet", [sample((f"Name {i}",), index=i) for i in range(4)]
    )
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "contexts").mkdir()
    return [
        f"data.train_files={rows}",
        f"data.val_files={rows}",
        f"disco.context_store={tmp_path / 'contexts'}",
        f"actor_rollout_ref.model.path={tmp_path / 'model'}",
        f"trainer.default_local_dir={tmp_path / 'run'}",
    ]


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was launched; in place of training, which its own tests do."""
    configs: list[Any] = []
    monkeypatch.setattr(launch, "train", configs.append)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    return configs


def test_it_says_the_size_checks_the_reward_and_launches(
    inputs: list[str], launched: list[Any], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert cli.main(["train", *inputs, "trainer.logger=[console,wandb]"]) == 0
    shown = capsys.readouterr().out
    assert "step: 8 questions x 8 trajectories = 64 trajectories" in shown
    assert (
        "gold answers right 1.00, other questions' answers right 0.00, tricks passed 0 of 20"
        in shown
    )
    assert "it logs offline" in shown
    (config,) = launched
    assert config.trainer.logger == ["console", "wandb", "file"]
    assert (tmp_path / "run" / "config.yaml").is_file()
    assert os.environ["WANDB_MODE"] == "offline"
    assert os.environ["VERL_FILE_LOGGER_PATH"].startswith(str(tmp_path / "run" / "metrics"))


def test_check_stops_before_the_launch(inputs: list[str], launched: list[Any]) -> None:
    assert cli.main(["train", "--check", *inputs]) == 0
    assert not launched


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("data.train_files=/nowhere/rows.parquet", "data.train_files=/nowhere/rows.parquet"),
        ("data.val_files=[/nowhere/v.parquet]", "data.val_files=/nowhere/v.parquet"),
        ("disco.context_store=/nowhere/contexts", "disco.context_store=/nowhere/contexts"),
        ("actor_rollout_ref.model.path=/nowhere/model", "make driver"),
        ("reward=paper disco.reward.accuracy=0", "weight above 0"),
        ("judge.name=mtach", "known: ['llm', 'match']"),
        ("worker=chat", "worker.model, worker.url"),
        ("judge=llm", "judge.model, judge.url"),
        ("+worker.api_key=sk-1", "worker.api_key holds a secret"),
    ],
)
def test_what_cannot_train_is_refused_with_its_key(
    inputs: list[str],
    launched: list[Any],
    override: str,
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["train", *inputs, *override.split()]) == 2
    error = capsys.readouterr().err
    assert said in error and "sk-1" not in error and not launched


def test_a_reward_that_cannot_tell_is_refused(
    inputs: list[str], launched: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = write_rows(tmp_path / "same.parquet", [sample(("Ada",), index=i) for i in range(3)])
    assert cli.main(["train", *inputs, f"data.train_files={rows}"]) == 2
    assert "no two different answers" in capsys.readouterr().err and not launched


def test_the_refusal_can_be_overridden_and_is_shown(
    inputs: list[str], launched: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    weightless = ["disco.reward.accuracy=0", "disco.reward_check.enforce=false"]
    assert cli.main(["train", *inputs, *weightless]) == 0
    shown = capsys.readouterr().out
    assert "reward check: FAILED" in shown and "not enforced: " in shown and "[0.51, 1.00]" in shown
    assert launched


def test_print_config_hides_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", "--print-config", "+worker.api_key=sk-1"]) == 0
    shown = capsys.readouterr().out
    assert "sk-1" not in shown and OmegaConf.create(shown).algorithm.adv_estimator == "grpo"


def test_wandb_is_left_alone_where_a_key_is_set_or_it_is_not_asked_for(tmp_path: Path) -> None:
    asked = OmegaConf.create({"trainer": {"logger": ["console", "wandb"]}})
    other = OmegaConf.create({"trainer": {"logger": "console"}})
    assert wandb_environment(asked, {}, tmp_path) == {"WANDB_MODE": "offline"}
    assert wandb_environment(other, {}, tmp_path) == {}
    assert wandb_environment(asked, {"WANDB_API_KEY": "k"}, tmp_path) == {}
    assert wandb_environment(asked, {"WANDB_MODE": "disabled"}, tmp_path) == {}
    (tmp_path / ".netrc").write_text("machine api.wandb.ai login user password k\n")
    assert wandb_environment(asked, {}, tmp_path) == {}


def test_the_step_plan_counts_and_estimates() -> None:
    shape = step_plan.Shape(calls=10, prompt_tokens=300, output_tokens=100, source="a test")
    plan = step_plan.StepPlan(4, 8, 60, 2048, 160, shape, parameters=1_000_000, flops=1e10)
    assert (plan.trajectories, plan.sequences, plan.tokens) == (32, 320, 128_000)
    assert plan.seconds == pytest.approx(128_000 * 1e6 * 10 / 1e10)
    lines = list(plan.lines())
    assert "320 sequences" in lines[1] and "128,000 tokens" in lines[1]
    assert "at least 128.0 s" in lines[2]
    unknown = step_plan.StepPlan(4, 8, 60, 2048, 160, shape)
    assert unknown.seconds is None and "none before" in list(unknown.lines())[2]


def test_records_of_an_earlier_run_set_the_expectation(tmp_path: Path) -> None:
    assert step_plan.recorded_shape(tmp_path) is None
    (tmp_path / "train").mkdir()
    call = {"prompt_tokens": 100, "output_tokens": 20}
    lines = [json.dumps({"calls": [call] * n}) for n in (2, 4)]
    text = "\n".join([*lines, '{"question": "É'])  # killed within a line, even within a letter
    (tmp_path / "train" / "000001.jsonl").write_bytes(text.encode()[:-1])
    shape = step_plan.recorded_shape(tmp_path)
    assert shape is not None
    assert (shape.calls, shape.prompt_tokens, shape.output_tokens) == (3.0, 100.0, 20.0)


def test_metrics_of_several_starts_are_read_as_one(tmp_path: Path) -> None:
    config = OmegaConf.create(
        {"trainer": {"default_local_dir": str(tmp_path / "run"), "logger": "console"}, "token": "t"}
    )
    for data in ([(1, 0.1), (2, 0.2)], [(2, 0.25), (3, 0.3)]):
        env: dict[str, str] = {}
        folder = run_folder.begin(config, env)
        lines = [json.dumps({"step": s, "data": {"reward": v}}) for s, v in data]
        Path(env["VERL_FILE_LOGGER_PATH"]).write_text("\n".join([*lines, '{"step": 4, "da']))
    assert run_folder.read_metrics(folder) == {
        1: {"reward": 0.1},
        2: {"reward": 0.25},
        3: {"reward": 0.3},
    }
    assert config.trainer.logger == ["console", "file"]
    saved = run_folder.read_config(folder)
    assert saved is not None and saved["token"] == "********"
    assert run_folder.read_config(tmp_path) is None
