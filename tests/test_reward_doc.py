"""The worked examples in docs/reward.md are what the code computes."""

import re
from pathlib import Path

import pytest

from disco_rl.config import compose
from disco_rl.core.sample import Hop
from disco_rl.rewards import (
    PRESETS,
    Fate,
    RewardParts,
    Value,
    evidence_score,
    format_share,
)
from disco_rl.rewards.check import LEAST, MOST, MOST_ERRORS
from disco_rl.rewards.probes import Kind
from disco_rl.trainer.metrics import MEANS
from disco_rl.trainer.watch import METRICS, WatchSettings
from tests.rewards.build import call, finding

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "reward.md").read_text(encoding="utf-8")


def table(first: str) -> list[dict[str, str]]:
    """The rows of the table whose first column is `first`, by column."""
    lines = PAGE.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"| {first} |"))
    names = cells(lines[start])
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append(dict(zip(names, cells(line), strict=True)))
    assert rows
    return rows


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_presets() -> None:
    rows = table("preset")
    assert {row["preset"] for row in rows} == set(PRESETS)
    for row in rows:
        weights = PRESETS[row["preset"]]
        assert (weights.accuracy, weights.format, weights.evidence) == tuple(
            float(row[name]) for name in ("wa", "wf", "we")
        )
        assert weights.gate_floor == (None if row["g"] == "none" else float(row["g"]))


def test_sums() -> None:
    for row in table("a"):
        parts = RewardParts(*(Value(float(row[name])) for name in "afe"))
        for name, weights in PRESETS.items():
            assert weights.total(parts) == pytest.approx(float(row[name])), (row, name)


def test_format() -> None:
    for row in table("calls without an error"):
        good, n = int(row["calls without an error"]), int(row["calls"])
        calls = [call(None if i < good else "cycle") for i in range(n)]
        assert format_share(calls) == Value(float(row["f"]))
        assert format_share(calls, strict=True) == Value(float(row["f, strict"]))


def test_evidence() -> None:
    hops = [Hop("?", "a", (), (shard,), (0, 1)) for shard in (2, 5)]
    for row in table("cited shards"):
        cited = (
            range(100)
            if row["cited shards"] == "all 100"
            else map(int, row["cited shards"].split())
        )
        seen = evidence_score(hops, [finding(shard, "q") for shard in cited])
        for name, value in (("p", seen.precision), ("r", seen.recall), ("F", seen.f_beta)):
            assert value == pytest.approx(float(row[name]), abs=5e-5), (row, name)


def test_fates_and_metrics_exist() -> None:
    named = {row["metric"].strip("`").removeprefix("hops_") for row in table("metric")}
    assert named == {fate.value for fate in Fate}
    alerts = {f"disco/alert/{row['alert'].strip('`')}" for row in table("alert")}
    parts = {name for name in METRICS if name.startswith("disco/alert/saturated/")}
    assert alerts - {"disco/alert/saturated/PART"} | parts == {
        name for name in METRICS if name.startswith("disco/alert/")
    }
    for name in re.findall(r"`(?:disco/train/)?((?:hops?|judge)_[\w/]+)`", PAGE):
        assert name in MEANS, name


def test_bounds_of_the_check() -> None:
    assert (LEAST[Kind.GOLD], LEAST[Kind.PARAPHRASE], LEAST[Kind.GOLD_QUOTES]) == (0.9, 0.7, 0.5)
    assert (MOST[Kind.OTHER], MOST[Kind.HEDGE], MOST_ERRORS) == (0.1, 0.05, 0.1)


def test_settings_of_the_watch_are_named() -> None:
    config = compose([]).disco.watch
    assert set(config) == set(WatchSettings.__dataclass_fields__)
    for name in config:
        assert f"`{name}`" in PAGE, name
