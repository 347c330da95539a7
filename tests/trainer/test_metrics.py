"""Metrics: means over trajectories, every name documented, failures counted."""

import math
from dataclasses import fields, replace
from typing import Any

import pytest

from disco_rl.core.evidence import EvidencePool, Finding, NarrowOutput
from disco_rl.core.trajectory import (
    CallKind,
    DriverCall,
    Generation,
    Stage,
    StopReason,
    Trajectory,
    WorkerUsage,
)
from disco_rl.rewards import (
    Abstention,
    EvidenceReport,
    EvidenceScore,
    Fate,
    HopFate,
    JudgeLedger,
    RewardParts,
    Value,
)
from disco_rl.trainer.facts import TrajectoryFacts
from disco_rl.trainer.metrics import FATES, names, summarise
from disco_rl.trainer.reward_bridge import Score


def call(kind: CallKind, prompt: int, output: int, error: str | None = None) -> DriverCall:
    reply = Generation("", tuple(range(prompt)), tuple(range(output)), (0.0,) * output)
    return DriverCall(kind, 0, None, reply, error)


TRAJECTORY = Trajectory(
    "q",
    "c",
    stages=[
        Stage(0, pool=EvidencePool({"n": NarrowOutput("n", (Finding("n", 0, "x", None),))})),
        Stage(1),
    ],
    calls=[
        call(CallKind.PLAN, 10, 5, "cycle"),
        call(CallKind.PLAN, 12, 4),
        call(CallKind.SYNTHESIZE, 20, 7),
        call(CallKind.REVIEW, 20, 2, "review_json"),
    ],
    stop=StopReason.STAGE_LIMIT,
    workers=WorkerUsage(
        calls=6,
        failures=1,
        memo_hits=2,
        prompt_tokens=900,
        cached_tokens=600,
        retries=1,
        dollars=0.25,
        shards={0: 100, 2: 50},
    ),
    seconds=3.0,
)
PARTS = RewardParts(Value(1.0), Value(0.5), Abstention("no gold hop"))


def scored(reward: float | None, masked: str | None = None, **more: Any) -> Score:
    return Score(PARTS, reward, masked, **more)


def test_facts_of_a_trajectory() -> None:
    facts = TrajectoryFacts.of(TRAJECTORY, scored(1.25))
    assert (facts.reward, facts.accuracy, facts.format, facts.evidence) == (1.25, 1.0, 0.5, None)
    assert (facts.stages, facts.calls, facts.findings) == (2, 4, 1)
    assert (facts.prompt_tokens, facts.output_tokens, facts.max_call_tokens) == (62, 18, 7)
    assert (facts.plan_calls, facts.plan_valid) == (2, 1)
    assert facts.errors == {"cycle": 1, "review_json": 1}
    assert (facts.worker_calls, facts.worker_failures, facts.worker_cached_tokens) == (6, 1, 600)
    assert TrajectoryFacts.from_dict(facts.to_dict()) == facts


def test_masked_trajectory_keeps_its_costs_and_loses_its_parts() -> None:
    facts = TrajectoryFacts.of(TRAJECTORY, scored(None, "judge down"))
    assert facts.reward is facts.accuracy is facts.format is facts.evidence is None
    assert facts.masked == "judge down" and facts.output_tokens == 18


def test_a_reason_beside_the_scores_masks_too() -> None:
    facts = TrajectoryFacts.of(TRAJECTORY, scored(1.25), "the Driver was never called")
    assert facts.reward is facts.accuracy is None and facts.masked == "the Driver was never called"


def test_who_missed_a_hop_and_what_the_judge_cost() -> None:
    hops = (HopFate(Fate.USED, 0), HopFate(Fate.UNUSED, 2), HopFate(Fate.NEVER_ASKED, None))
    report = EvidenceReport(EvidenceScore(0.5, 1.0, 0.5), EvidenceScore(0.2, 0.5, 0.25), hops)
    ledger = JudgeLedger(questions=2, asked=1, cached=1, requests=3, seconds=1.5)
    facts = [
        TrajectoryFacts.of(TRAJECTORY, scored(1.0, evidence=report, judge=ledger, agrees=agrees))
        for agrees in (True, False, None)
    ]
    assert TrajectoryFacts.from_dict(facts[0].to_dict()) == facts[0]
    seen = summarise([*facts, TrajectoryFacts.lost("x")], "val")
    got = {name.removeprefix("disco/val/"): value for name, value in seen.items()}
    assert got["hops_used"] == got["hops_unused"] == got["hops_never_asked"] == pytest.approx(1 / 3)
    assert got["hops_missed"] == got["hops_failed"] == 0 and got["hop_stage"] == 2.0
    assert got["hop_1/used"] == got["hop_2/unused"] == got["hop_3/never_asked"] == 1
    assert got["hop_1/unused"] == got["hop_2/used"] == 0 and "hop_4/used" not in got
    assert got["hops_found_in/1"] == got["hops_found_in/3"] == pytest.approx(1 / 3)
    assert got["hops_found_in/2"] == 0
    assert (got["recall"], got["precision"]) == (0.5, 1.0)
    assert (got["span_recall"], got["span_precision"]) == (0.25, 0.5)
    assert (got["judge_questions"], got["judge_requests"], got["judge_seconds"]) == (2, 3, 1.5)
    assert got["judge_agreement"] == 0.5  # over the two that were asked
    plain = summarise([TrajectoryFacts.of(TRAJECTORY, scored(1.0))], "val")
    assert not any("judge" in name or "hop" in name for name in plain)  # nothing to average


@pytest.mark.parametrize(
    ("stop", "lost"), [(StopReason.ERROR, 0), (StopReason.ACCEPTED, 1), (StopReason.ACCEPTED, 0)]
)
def test_an_episode_that_infrastructure_cut_short_blames_nobody_for_its_hops(
    stop: StopReason, lost: int
) -> None:
    seen = EvidenceScore(0.0, 0.0, 0.0)
    report = EvidenceReport(seen, seen, (HopFate(Fate.NEVER_ASKED, None),))
    made = replace(TRAJECTORY, stop=stop, workers=replace(TRAJECTORY.workers, lost=lost))
    facts = TrajectoryFacts.of(made, scored(None, "down", evidence=report))
    whole = stop is StopReason.ACCEPTED and not lost
    assert facts.hops == ((("never_asked", None),) if whole else ())
    assert (facts.recall == facts.span_recall == 0.0) is whole


def test_lost_trajectory_is_all_zero() -> None:
    facts = TrajectoryFacts.lost("no context")
    counts = [getattr(facts, f.name) for f in fields(facts) if "int" in str(f.type)]
    assert counts and not any(counts)
    assert facts.masked == "no context" and facts.stop == "error"


def test_means_are_over_trajectories_not_rows() -> None:
    short = replace(TrajectoryFacts.of(TRAJECTORY, scored(0.0)), calls=1, accuracy=0.0, reward=0.0)
    long = replace(short, calls=9, accuracy=1.0, reward=2.0)
    metrics = summarise([short, long], "val")
    assert metrics["disco/val/accuracy"] == 0.5  # over rows it would be 0.9
    assert metrics["disco/val/reward"] == 1.0 and metrics["disco/val/calls"] == 5.0
    assert metrics["disco/val/calls_max"] == 9
    assert "disco/val/evidence" not in metrics  # abstained: nothing to average, not 0


def test_reading_is_computed_tokens_over_those_of_distinct_shards() -> None:
    one = TrajectoryFacts.of(TRAJECTORY, scored(1.0))
    metrics = summarise([one, replace(one, shards={2: 50, 3: 100})], "train")
    assert metrics["disco/train/worker_computed_tokens"] == 600
    assert metrics["disco/train/worker_shard_tokens"] == 250
    assert metrics["disco/train/worker_reads"] == 2.4
    assert metrics["disco/train/worker_dollars_sum"] == 0.5
    other = summarise([one, replace(one, context="d")], "train")
    assert other["disco/train/worker_reads"] == 2.0
    retriever = replace(one, worker_prompt_tokens=0, worker_cached_tokens=0)
    assert "disco/train/worker_reads" not in summarise([retriever], "train")


def test_drops_are_counted() -> None:
    good = TrajectoryFacts.of(TRAJECTORY, scored(1.0))
    metrics = summarise([good, good, TrajectoryFacts.lost("x")], "train", expected=8)
    assert metrics["disco/train/trajectories"] == 3
    assert metrics["disco/train/masked_count"] == 1 and metrics["disco/train/lost_count"] == 5
    assert metrics["disco/train/drop_rate"] == pytest.approx(6 / 8)
    assert metrics["disco/train/reward"] == 1.0  # a failure is not a zero


def test_shares_of_stops_and_errors_sum_up() -> None:
    good = TrajectoryFacts.of(TRAJECTORY, scored(1.0))
    metrics = summarise([good, replace(good, stop="accepted", errors={})], "train")
    stops = {n: v for n, v in metrics.items() if n.startswith("disco/train/stop/")}
    assert sum(stops.values()) == pytest.approx(1.0) and len(stops) == len(StopReason)
    assert metrics["disco/train/errors/cycle"] == 0.5
    assert metrics["disco/train/refused_calls"] == 1.0
    assert metrics["disco/train/plan_valid"] == 0.5


def test_each_fate_has_its_metrics() -> None:
    assert set(FATES) == {fate.value for fate in Fate}


@pytest.mark.parametrize("split", ["train", "val"])
def test_every_metric_is_documented_and_finite(split: str) -> None:
    facts = [TrajectoryFacts.of(TRAJECTORY, scored(1.0)), TrajectoryFacts.lost("x")]
    metrics = summarise(facts, split, expected=2)
    assert set(metrics) <= set(names(split))
    assert all(math.isfinite(value) for value in metrics.values())
    assert all(text for text in names(split).values())


def test_no_trajectories_are_no_metrics_but_the_counts() -> None:
    metrics = summarise([], "train", expected=4)
    assert metrics == {
        "disco/train/trajectories": 0,
        "disco/train/masked_count": 0,
        "disco/train/lost_count": 4,
        "disco/train/drop_rate": 1.0,
    }
