"""Alerts on metrics that are made up, canaries through a judge, and what they are logged as."""

import logging
from typing import Any

import pytest

from disco_rl.rewards import MatchJudge, Verdict
from disco_rl.rewards.canaries import CANARIES, CanaryReport, ask_canaries, canary_judge
from disco_rl.trainer import metrics
from disco_rl.trainer.watch import METRICS, Watch, WatchSettings
from tests.clients.scripted import says, status
from tests.rewards.endpoint import QUICK, judging

MATCH = {"name": "match"}


def run(watch: Watch, steps: list[dict[str, float]]) -> list[dict[str, float]]:
    """What each step's metrics raise, by alert."""
    made = [
        watch.step(i + 1, {f"disco/train/{name}": value for name, value in step.items()})
        for i, step in enumerate(steps)
    ]
    return [{n.removeprefix("disco/alert/"): v for n, v in one.items()} for one in made]


def test_form_that_rises_while_accuracy_falls_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    steps = [{"format": 0.5 + 0.05 * i, "accuracy": 0.6 - 0.05 * i} for i in range(8)]
    with caplog.at_level(logging.WARNING):
        seen = run(Watch(WatchSettings(window=4)), steps)
    told = [one.get("format_up_accuracy_down") for one in seen]
    assert told == [None, None, None, 1, 1, 1, 1, 1]  # a trend takes a window
    (line,) = [r.message for r in caplog.records if "format_up" in r.message]
    assert "format rose by 0.10 while accuracy fell by 0.10" in line


@pytest.mark.parametrize(
    ("form", "accuracy"), [(0.05, 0.05), (-0.05, -0.05), (0.05, 0.0), (0.0, -0.05), (0.001, -0.5)]
)
def test_other_trends_raise_nothing(form: float, accuracy: float) -> None:
    steps = [{"format": 0.4 + form * i, "accuracy": 0.5 + accuracy * i} for i in range(6)]
    seen = run(Watch(WatchSettings(window=4)), steps)
    assert {one.get("format_up_accuracy_down", 0.0) for one in seen} == {0.0}


def test_a_part_that_is_all_but_one_or_zero_is_saturated() -> None:
    steps = [{"format": 1.0, "accuracy": 0.0, "evidence": 0.5} for _ in range(5)]
    last = run(Watch(WatchSettings(window=4)), steps)[-1]
    assert last["saturated/format"] == last["saturated/accuracy"] == 1.0
    assert last["saturated/evidence"] == 0.0
    assert "saturated/format" not in run(Watch(WatchSettings(window=4)), steps[:3])[-1]
    assert (
        "saturated/evidence" not in run(Watch(WatchSettings(window=2)), [{"format": 1.0}] * 3)[-1]
    )


def test_masked_trajectories_over_the_bound_and_back(caplog: pytest.LogCaptureFixture) -> None:
    steps = [{"drop_rate": rate} for rate in (0.0, 0.3, 0.4, 0.1, 0.5)]
    with caplog.at_level(logging.WARNING):
        seen = run(Watch(WatchSettings(masked_share=0.2)), steps)
    assert [one["masked"] for one in seen] == [0, 1, 1, 0, 1]
    assert len(caplog.records) == 2  # it began twice


def test_a_second_judge_that_disagrees() -> None:
    steps = [{"judge_agreement": 0.9}, {}, {"judge_agreement": 0.5}]
    seen = run(Watch(WatchSettings(agreement=0.8)), steps)
    assert [one["agreement"] for one in seen] == [0, 0, 1]
    assert "agreement" not in run(Watch(WatchSettings()), [{}])[0]


def test_canaries_are_asked_every_so_many_steps() -> None:
    watch = Watch(WatchSettings(canaries_every=2), MATCH)
    seen = [watch.step(i, {}) for i in range(1, 5)]
    assert [one.get("disco/canary/right") for one in seen] == [None, 1.0, None, 1.0]
    assert seen[1]["disco/alert/canary"] == 0.0 and seen[1]["disco/canary/errors"] == 0.0
    assert not Watch(WatchSettings(), MATCH).step(2, {})  # 0: never


async def test_the_match_judge_knows_all_canaries() -> None:
    report = await ask_canaries(MatchJudge())
    assert (report.right, report.errors, report.wrong) == (len(CANARIES), 0, ())


async def test_a_changed_judge_a_dead_one_and_one_without_memory() -> None:
    async with judging(says({"verdict": "yes"})) as (_, server):
        config = {"name": "llm", "url": server.url, "model": "m", **QUICK}
        for _ in range(2):  # it is asked again, not remembered
            report = await ask_canaries(canary_judge(config))
            assert {c.verdict for c in report.wrong} == {Verdict.NO} and len(report.wrong) == 5
        assert len(server.bodies) == 2 * len(CANARIES)
    async with judging(status(503)) as (_, server):
        report = await ask_canaries(canary_judge({**config, "url": server.url}))
    assert (report.errors, report.right, report.wrong) == (len(CANARIES), 0, ())


@pytest.mark.parametrize(("errors", "right", "alert"), [(0, 8, 0), (2, 6, 0), (2, 5, 1), (8, 0, 1)])
def test_an_error_is_no_wrong_verdict(errors: int, right: int, alert: int) -> None:
    wrong = CANARIES[: 8 - errors - right]
    added = Watch(WatchSettings())._canaries(CanaryReport(8, right, errors, wrong))
    assert added["disco/alert/canary"] == alert and added["disco/canary/errors"] == errors
    assert added.get("disco/canary/right") == (right / (8 - errors) if errors < 8 else None)


def test_every_alert_is_documented() -> None:
    steps = [{"format": 1.0, "accuracy": 0.0, "evidence": 1.0, "drop_rate": 1.0}] * 4
    watch = Watch(WatchSettings(window=2, canaries_every=1), MATCH)
    steps = [{**step, "judge_agreement": 0.0} for step in steps]
    seen = [
        watch.step(i, {f"disco/train/{n}": v for n, v in step.items()})
        for i, step in enumerate(steps)
    ]
    assert set().union(*seen) == set(METRICS) <= set(metrics.names("train"))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"windw": 3}, r"unknown keys \['windw'\]"),
        ({"window": 1}, "at least 2 steps"),
        ({"patience": 2}, "keep_best"),
        ({"patience": 0, "keep_best": "accuracy"}, "at least 1"),
    ],
)
def test_settings_that_cannot_be_used(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        WatchSettings.from_config(config)
