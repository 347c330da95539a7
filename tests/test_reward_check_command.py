"""`disco-rl reward-check` on rows and contexts on disk."""

import pytest

from data_pipeline.__main__ import main as build
from disco_rl import cli


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Overrides that name a small embedded world."""
    out = tmp_path_factory.mktemp("world") / "data"
    build(["world", f"out={out}", "n_train=16", "n_validation=8", "n_test=8"])
    return [f"data.train_files={out}/train.parquet", f"disco.context_store={out}/contexts"]


def test_real_rows_with_their_evidence(
    world: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["reward-check", *world, "--rows", "8"]) == 0
    lines = capsys.readouterr().out.splitlines()
    gold = next(line for line in lines if line.startswith("evidence: gold quotes"))
    assert gold.split()[3:7] == ["yes", "8", "8", "0"]
    assert not any(line.startswith("refused") for line in lines)


def test_a_judge_that_is_down_is_refused_with_what_it_cost(
    world: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    judge = ["judge=llm", "judge.url=http://127.0.0.1:9/v1", "judge.model=m"]
    assert cli.main(["reward-check", *world, *judge, "judge.max_attempts=1", "--rows", "2"]) == 1
    shown = capsys.readouterr().out
    assert "refused: the judge failed on" in shown and "judge: questions: 2" in shown


def test_without_contexts_only_answers_are_checked(
    world: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["reward-check", world[0], "disco.context_store=/nowhere"]) == 0
    shown = capsys.readouterr().out
    assert "evidence isn't checked: /nowhere: no such context store" in shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["judge=llm"], "set judge.model, judge.url"),
        (["--rows", "1"], "--rows must be at least 2"),
        (["data.train_files=/nowhere.parquet"], "/nowhere.parquet"),
    ],
)
def test_what_cannot_be_checked_says_what_to_set(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["reward-check", *words]) == 2
    assert said in capsys.readouterr().err
