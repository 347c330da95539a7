import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disco_rl.core.trajectory import StopReason, Trajectory
from disco_rl.rewards import (
    PRESETS,
    Abstention,
    Failure,
    Judge,
    JudgeError,
    MatchJudge,
    RewardParts,
    Value,
    Verdict,
    format_share,
    score,
)
from tests.rewards.build import call, finding, sample, stage, trajectory


class SayingJudge:
    """Gives a fixed verdict, or raises it."""

    def __init__(self, correct: Verdict | JudgeError, supported: Verdict | JudgeError):
        self.correct, self.supported = correct, supported

    async def verdict(self, question: str, answers: Sequence[str], reply: str) -> Verdict:
        return self._say(self.correct)

    async def supports(self, question: str, reply: str, evidence: Sequence[str]) -> Verdict:
        return self._say(self.supported)

    def _say(self, what: Verdict | JudgeError) -> Verdict:
        if isinstance(what, JudgeError):
            raise what
        return what


def rate(made: Trajectory, judge: Judge | None = None, **kwargs: bool) -> RewardParts:
    gold = sample(("Ada Vey",), gold=((2,), (5,)))
    return asyncio.run(score(made, gold, judge or MatchJudge(), **kwargs))


TWO_HOPS = [
    stage(0, "Roe Guild", [finding(2, "The tower was built by the Roe Guild.")]),
    stage(1, "Ada Vey", [finding(5, "Ada Vey founded the Roe Guild.")]),
]


def test_a_perfect_two_hop_trajectory_earns_all() -> None:
    parts = rate(trajectory(TWO_HOPS, [call()] * 6))
    assert parts == RewardParts(Value(1.0), Value(1.0), Value(1.0))
    assert PRESETS["paper"].total(parts) == PRESETS["gated"].total(parts) == 2.0


def test_a_repaired_call_lowers_format_and_strict_zeroes_it() -> None:
    calls = [call("bad_json"), call(), call(), call()]
    assert rate(trajectory(TWO_HOPS, calls)).format == Value(0.75)
    assert rate(trajectory(TWO_HOPS, calls), strict_format=True).format == Value(0.0)
    assert format_share([call()] * 3, strict=True) == Value(1.0)
    assert isinstance(format_share([]), Abstention)


@given(st.lists(st.booleans(), min_size=1))
def test_format_is_the_share_of_good_calls_and_strict_its_floor(good: list[bool]) -> None:
    calls = [call(None if ok else "schema") for ok in good]
    assert format_share(calls) == Value(sum(good) / len(good))
    assert format_share(calls, strict=True) == Value(float(all(good)))


def test_a_right_answer_without_its_evidence_earns_no_evidence() -> None:
    lucky = trajectory([stage(0, "Ada Vey", [finding(7, "Ada Vey sang.")])], [call()])
    parts = rate(lucky)
    assert (parts.accuracy, parts.evidence) == (Value(1.0), Value(0.0))


def test_gold_shards_that_do_not_say_the_answer_earn_no_evidence() -> None:
    found = [finding(2, "The tower is tall."), finding(5, "The guild is old.")]
    assert rate(trajectory([stage(0, "Ada Vey", found)])).evidence == Value(0.0)
    invented = [finding(2, "a"), finding(5, "Ada Vey founded it.", verbatim=False)]
    assert rate(trajectory([stage(0, "Ada Vey", invented)])).evidence == Value(0.0)


def test_a_wrong_answer_that_the_evidence_supports_earns_evidence_only() -> None:
    made = trajectory([TWO_HOPS[0], stage(1, "Roe Guild", [finding(5, "The Roe Guild.")])])
    parts = rate(made)
    assert (parts.accuracy, parts.evidence) == (Value(0.0), Value(1.0))


def test_citing_every_shard_earns_less_than_citing_the_gold_ones() -> None:
    text = "Ada Vey founded the Roe Guild."
    everything = trajectory([stage(0, "Ada Vey", [finding(i, text) for i in range(10)])])
    spam, exact = rate(everything).evidence, rate(trajectory(TWO_HOPS)).evidence
    assert isinstance(spam, Value) and isinstance(exact, Value)
    assert spam.value == pytest.approx(5 * 0.2 / (4 * 0.2 + 1)) and exact.value == 1.0


@pytest.mark.parametrize("stop", [s for s in StopReason if s is not StopReason.ERROR])
def test_without_an_answer_accuracy_and_evidence_are_zero(stop: StopReason) -> None:
    parts = rate(trajectory([stage(0, None, [finding(2, "q")])], [call("schema")], stop=stop))
    assert parts == RewardParts(Value(0.0), Value(0.0), Value(0.0))
    assert PRESETS["gated"].total(parts) == 0.0


@pytest.mark.parametrize("answer", ["", "  ", "<think>Ada Vey</think>"])
def test_an_answer_that_is_only_thinking_is_no_answer(answer: str) -> None:
    made = trajectory([stage(0, answer, [finding(2, "Ada Vey")])], [call()])
    assert rate(made) == RewardParts(Value(0.0), Value(1.0), Value(0.0))


def test_a_deadline_with_an_answer_is_scored() -> None:
    made = trajectory(TWO_HOPS, [call()], stop=StopReason.DEADLINE)
    assert PRESETS["paper"].total(rate(made)) == 2.0


def test_an_infrastructure_error_masks_even_with_an_answer() -> None:
    made = trajectory(TWO_HOPS, [call()], stop=StopReason.ERROR, error="server died")
    parts = rate(made)
    assert parts.failure == "accuracy: server died"
    assert all(weights.total(parts) is None for weights in PRESETS.values())


def test_calls_lost_to_the_servers_mask_and_a_workers_own_failures_do_not() -> None:
    made = trajectory([stage(0, "Ada Vey", [finding(2, "Ada Vey sings.")])], [call()])
    made.workers.calls, made.workers.failures = 10, 2
    assert rate(made).failure is None
    made.workers.lost = 1
    assert "1 Worker calls failed at the servers" in str(rate(made).failure)


def test_a_deadline_that_workers_let_pass_masks_and_the_drivers_own_does_not() -> None:
    made = trajectory([stage(0, None, [])], [call()], stop=StopReason.DEADLINE)
    assert rate(made).failure is None
    made.workers.cancelled = 2
    assert "2 Worker calls had no reply" in str(rate(made).failure)
    answered = trajectory(TWO_HOPS, [call()], stop=StopReason.DEADLINE)
    answered.workers.cancelled = 2
    assert rate(answered).failure is None


def test_a_broken_judge_masks() -> None:
    broken = JudgeError("no verdict in 'maybe YES maybe NO'")
    for judge in (SayingJudge(broken, Verdict.YES), SayingJudge(Verdict.YES, broken)):
        parts = rate(trajectory(TWO_HOPS, [call()]), judge)
        assert parts.failure is not None and "no verdict" in parts.failure
        assert PRESETS["paper"].total(parts) is None


def test_an_undecided_judge_masks_and_is_never_a_zero() -> None:
    parts = rate(trajectory(TWO_HOPS, [call()]), SayingJudge(Verdict.YES, Verdict.UNDECIDED))
    assert parts.evidence == Failure("the judge could not decide")
    assert PRESETS["paper"].total(parts) is None and PRESETS["no_evidence"].total(parts) == 1.5
    parts = rate(trajectory(TWO_HOPS, [call()]), SayingJudge(Verdict.UNDECIDED, Verdict.YES))
    assert PRESETS["paper"].total(parts) is None


def test_a_judge_that_is_unsure_of_support_only_matters_with_gold_evidence() -> None:
    made = trajectory([stage(0, "Ada Vey", [finding(7, "Ada Vey")])], [call()])
    judge = SayingJudge(Verdict.YES, JudgeError("should not be asked"))
    assert rate(made, judge).evidence == Value(0.0)


def test_a_sample_without_hops_abstains_from_evidence() -> None:
    bare = sample(("Ada Vey",), gold=())
    for answer in ("Ada Vey", None):
        made = trajectory([stage(0, answer, [finding(2, "Ada Vey")])], [call()])
        parts = asyncio.run(score(made, bare, MatchJudge()))
        assert isinstance(parts.evidence, Abstention)
        assert not isinstance(parts.accuracy, Failure)
