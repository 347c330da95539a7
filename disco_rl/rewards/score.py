"""Scores a trajectory against its sample."""

from collections.abc import Coroutine, Sequence
from typing import Any

from disco_rl.core.sample import Sample
from disco_rl.core.shards import Shard
from disco_rl.core.trajectory import StopReason, Trajectory
from disco_rl.engine.tasks import gather
from disco_rl.rewards.evidence import cited_findings, evidence_score, span_score
from disco_rl.rewards.format import format_share
from disco_rl.rewards.judge import Judge, JudgeError, Verdict, said
from disco_rl.rewards.parts import Abstention, Failure, Part, RewardParts, Value


async def score(
    trajectory: Trajectory,
    sample: Sample,
    judge: Judge,
    *,
    strict_format: bool = False,
    spans_in: Sequence[Shard] | None = None,
) -> RewardParts:
    """The three parts of the reward (paper, equation 7; the details are in each part's module).

    A trajectory that infrastructure stopped (`StopReason.ERROR`), that lost Worker calls to it, or
    whose deadline passed without an answer while Workers had yet to reply, fails in every part. Any
    other one is the Driver's doing: with no answer, accuracy and evidence are 0; with one it is
    scored even where the deadline or a limit ended it. A judge that breaks fails its part. Never
    raises for a bad trajectory; `RewardWeights.total` sums the parts. Evidence counts by shard, or,
    with `spans_in` (the context's shards), by span.
    """
    if trajectory.stop is StopReason.ERROR:
        return RewardParts.failed(trajectory.error or "the episode failed without saying why")
    if trajectory.workers.lost:
        return RewardParts.failed(f"{trajectory.workers.lost} Worker calls failed at the servers")
    form = format_share(trajectory.calls, strict=strict_format)
    answer = said(trajectory.answer or "")
    waiting = trajectory.workers.cancelled
    if not answer and waiting and trajectory.stop is StopReason.DEADLINE:
        return RewardParts.failed(f"the deadline passed while {waiting} Worker calls had no reply")
    if not answer:
        no_gold = Abstention("the sample names no gold hop")
        return RewardParts(Value(0.0), form, Value(0.0) if sample.hops else no_gold)
    # Both at once, so that a judge that is down costs one deadline and not two.
    accuracy, evidence = await gather(
        [
            _ask(judge.verdict(sample.question, sample.answers, answer)),
            _evidence(trajectory, sample, judge, answer, spans_in),
        ]
    )
    return RewardParts(accuracy, form, evidence)


async def _evidence(
    trajectory: Trajectory,
    sample: Sample,
    judge: Judge,
    answer: str,
    spans_in: Sequence[Shard] | None,
) -> Part:
    if not sample.hops:
        return Abstention("the sample names no gold hop")
    findings = cited_findings(trajectory)
    if spans_in is None:
        found = evidence_score(sample.hops, findings)
    else:
        found = span_score(sample.hops, findings, spans_in)
    if not found.f_beta:
        return Value(0.0)  # whatever the judge would say, so it isn't asked
    support = await _ask(
        judge.supports(sample.question, answer, [finding.quote for finding in findings])
    )
    return Value(found.f_beta * support.value) if isinstance(support, Value) else support


async def _ask(verdict: Coroutine[Any, Any, Verdict]) -> Part:
    try:
        given = await verdict
    except JudgeError as error:
        return Failure(f"the judge gave no verdict: {error}")
    if given is Verdict.UNDECIDED:
        return Abstention("the judge could not decide")
    return Value(1.0 if given is Verdict.YES else 0.0)
