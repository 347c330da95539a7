"""From a trajectory to a reward or a reason: weights, span evidence, ledger, second judge."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from disco_rl.core.shards import Shard
from disco_rl.rewards import JudgeError, MatchJudge, RewardWeights, Verdict
from disco_rl.trainer.facts import TrajectoryFacts
from disco_rl.trainer.metrics import summarise
from disco_rl.trainer.reward_bridge import Scorer
from tests.clients.scripted import says, status
from tests.rewards.build import call, finding, sample, stage, trajectory
from tests.rewards.endpoint import FAILURES, SLOW, UNPARSED, judging

PAPER = {"accuracy": 1.0, "format": 0.5, "evidence": 0.5, "gate_floor": None}
RIGHT = trajectory([stage(0, "Ada Vey", [finding(2, "Ada Vey")])], [call()])
SHARDS = [Shard(i, 100 * i, 100 * i + 100, 25) for i in range(10)]


class Second(MatchJudge):
    def __init__(self, says: Verdict | None):
        self.says, self.asked = says, 0

    async def verdict(self, question: str, answers: Sequence[str], reply: str) -> Verdict:
        self.asked += 1
        if self.says is None:
            raise JudgeError("down")
        return self.says


async def test_the_config_chooses_how_evidence_counts() -> None:
    gold = sample()  # its span is 0:1, in shard 0, though it names shard 2
    by_shard = await Scorer.from_config({"name": "match"}, PAPER)(RIGHT, gold, SHARDS)
    by_span = await Scorer.from_config({"name": "match"}, {**PAPER, "evidence_by": "span"})(
        RIGHT, gold, SHARDS
    )
    assert (by_shard.reward, by_span.reward) == (2.0, 1.5)
    for made in (by_shard, by_span):  # shown either way
        assert made.evidence is not None and made.evidence.by_span is not None
        assert (made.evidence.by_shard.recall, made.evidence.by_span.recall) == (1.0, 0.0)
    with pytest.raises(ValueError, match="choose shard or span"):
        Scorer.from_config({"name": "match"}, {**PAPER, "evidence_by": "word"})


async def test_a_trajectory_carries_its_share_of_the_judges_cost() -> None:
    async with judging(says({"verdict": "yes"}, prompt_tokens=10)) as (judge, _):
        first = await Scorer(judge, RewardWeights())(RIGHT, sample())
        again = await Scorer(judge, RewardWeights())(RIGHT, sample())
    assert (first.judge.questions, first.judge.asked, first.judge.prompt_tokens) == (2, 2, 20)
    assert (again.judge.questions, again.judge.asked, again.judge.cached) == (2, 0, 2)
    record = first.to_record()
    assert record["judge"]["requests"] == 2 and "errors" not in record["judge"]
    assert record["total"] == 2.0 and record["accuracy"] == {"value": 1.0}


async def test_a_judge_that_is_down_masks_and_its_errors_are_charged() -> None:
    async with judging(status(503)) as (judge, _):
        made = await Scorer(judge, RewardWeights())(RIGHT, sample())
    assert made.reward is None and "status 503" in (made.masked or "")
    assert (made.judge.errors, made.judge.failed) == (2, 2)


BROKEN = [reply for reply, _ in (*FAILURES, *UNPARSED)] + SLOW


@pytest.mark.parametrize("reply", BROKEN, ids=range(len(BROKEN)))
async def test_whatever_an_endpoint_does_wrong_is_counted_and_never_a_zero(reply: Any) -> None:
    async with judging(reply, attempt_s=1.0) as (judge, _):
        made = await Scorer(judge, RewardWeights())(RIGHT, sample())
    assert made.reward is None and made.masked
    assert made.parts.failed_names == ("accuracy", "evidence")
    assert made.parts.values() == {"accuracy": None, "format": 1.0, "evidence": None}
    assert (made.judge.questions, made.judge.errors) == (2, 2)


async def test_both_questions_are_asked_at_once() -> None:
    there: list[Any] = []
    both = asyncio.Event()

    async def once_both_are_there(request: Any) -> Any:
        there.append(request)
        if len(there) == 2:
            both.set()
        await both.wait()
        return await says({"verdict": "yes"})(request)

    async with judging(once_both_are_there) as (judge, _):
        made = await Scorer(judge, RewardWeights())(RIGHT, sample())
    assert made.judge.errors == 0 and made.reward == 2.0


async def test_evidence_of_no_weight_needs_no_judge() -> None:
    async def no_support(request: Any) -> Any:
        asked = (await request.json())["messages"][-1]["content"]
        return await (status(503) if "evidence" in asked else says({"verdict": "yes"}))(request)

    async with judging(no_support) as (judge, _):
        made = await Scorer(judge, RewardWeights(evidence=0.0))(RIGHT, sample())
    assert made.reward == 1.5 and made.masked is None
    # Counted all the same: in the record, the ledger and disco/train/failed/evidence.
    assert "status 503" in made.to_record()["evidence"]["failure"]
    assert made.judge.errors == 1 and made.parts.failed_names == ("evidence",)
    seen = summarise([TrajectoryFacts.of(RIGHT, made)], "train")
    assert seen["disco/train/failed/evidence"] == 1.0 and seen["disco/train/masked_count"] == 0
    assert seen["disco/train/failed/accuracy"] == 0.0 and "disco/train/evidence" not in seen


@pytest.mark.parametrize(
    ("says", "agrees"),
    [(Verdict.YES, True), (Verdict.NO, False), (Verdict.UNDECIDED, None), (None, None)],
)
async def test_a_second_judge_is_compared_and_changes_nothing(
    says: Verdict | None, agrees: bool | None
) -> None:
    scorer = Scorer(MatchJudge(), RewardWeights(), second=Second(says), second_share=1.0)
    made = await scorer(RIGHT, sample())
    assert made.agrees is agrees and made.reward == 2.0 and made.masked is None


async def test_a_bug_in_the_second_judge_costs_no_trajectory() -> None:
    class Broken(MatchJudge):
        async def verdict(self, question: str, answers: Sequence[str], reply: str) -> Verdict:
            raise AttributeError("'str' object has no attribute 'get'")

    scorer = Scorer(MatchJudge(), RewardWeights(), second=Broken(), second_share=1.0)
    made = await scorer(RIGHT, sample())
    assert made.agrees is None and made.reward == 2.0


async def test_the_second_judge_sees_the_same_share_each_time() -> None:
    second = Second(Verdict.YES)
    scorer = Scorer(MatchJudge(), RewardWeights(), second=second, second_share=0.25)
    made = [trajectory([stage(0, f"Name {i}", [])], [call()]) for i in range(200)]
    seen = [[(await scorer(t, sample())).agrees for t in made] for _ in range(2)]
    assert seen[0] == seen[1] and 30 < second.asked / 2 < 70
    unanswered: Any = trajectory([stage(0, None, [])], [call()])
    assert (await scorer(unanswered, sample())).agrees is None


def test_the_second_judge_comes_from_the_watch_config() -> None:
    watch = {"second_judge": {"name": "match"}, "second_share": 0.5}
    made = Scorer.from_config({"name": "match"}, PAPER, watch)
    assert isinstance(made.second, MatchJudge) and made.second_share == 0.5
    with pytest.raises(ValueError, match="known"):
        Scorer.from_config({"name": "match"}, PAPER, {"second_judge": {"name": "x"}})
