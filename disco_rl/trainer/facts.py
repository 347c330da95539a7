"""What one trajectory is known by in metrics: small, flat, sent from the rollout to the trainer."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from disco_rl.core.trajectory import CallKind, StopReason, Trajectory
from disco_rl.rewards import Fate
from disco_rl.trainer.reward_bridge import Score


@dataclass(frozen=True)
class TrajectoryFacts:
    """Counts of one trajectory. A reward or part is None where masked or abstained.

    `errors` counts the refused Driver calls by kind, `hops` the gold hops by what became of them
    (`rewards.Fate`); `hop_stage` is the mean stage, from 1, in which those that were found were
    found first. `judge` is the trajectory's share of the judge's ledger. Tokens are the Driver's
    unless named otherwise; `seconds` is wall time.
    """

    reward: float | None
    accuracy: float | None
    format: float | None
    evidence: float | None
    masked: str | None  # why it is out of the update, or None
    stop: str
    stages: int
    calls: int
    plan_calls: int
    plan_valid: int
    prompt_tokens: int
    output_tokens: int
    max_call_tokens: int
    worker_calls: int
    worker_failures: int
    worker_memo_hits: int
    worker_prompt_tokens: int
    worker_cached_tokens: int
    worker_output_tokens: int
    findings: int
    seconds: float
    errors: Mapping[str, int] = field(default_factory=dict)
    recall: float | None = None
    precision: float | None = None
    span_recall: float | None = None
    span_precision: float | None = None
    hops: Mapping[str, int] = field(default_factory=dict)
    hop_stage: float | None = None
    judge: Mapping[str, float] = field(default_factory=dict)
    second_agrees: bool | None = None

    @classmethod
    def of(
        cls, trajectory: Trajectory, score: Score, masked: str | None = None
    ) -> "TrajectoryFacts":
        """`masked` is a reason beside the score's own."""
        masked = score.masked or masked
        values = score.parts.values()
        report = score.evidence
        found = [
            hop.stage + 1
            for hop in (report.hops if report else ())
            if hop.stage is not None and hop.fate in (Fate.USED, Fate.UNUSED)
        ]
        plans = [call for call in trajectory.calls if call.kind is CallKind.PLAN]
        sizes = [
            (
                len(call.generation.prompt_ids) or call.generation.n_prompt,
                len(call.generation.output_ids) or call.generation.n_output,
            )
            for call in trajectory.calls
        ]
        workers = trajectory.workers
        return cls(
            reward=None if masked else score.reward,
            accuracy=None if masked else values["accuracy"],
            format=None if masked else values["format"],
            evidence=None if masked else values["evidence"],
            masked=masked,
            stop=trajectory.stop.value,
            stages=len(trajectory.stages),
            calls=len(trajectory.calls),
            plan_calls=len(plans),
            plan_valid=sum(call.error is None for call in plans),
            prompt_tokens=sum(prompt for prompt, _ in sizes),
            output_tokens=sum(output for _, output in sizes),
            max_call_tokens=max((output for _, output in sizes), default=0),
            worker_calls=workers.calls,
            worker_failures=workers.failures,
            worker_memo_hits=workers.memo_hits,
            worker_prompt_tokens=workers.prompt_tokens,
            worker_cached_tokens=workers.cached_tokens,
            worker_output_tokens=workers.output_tokens,
            findings=sum(len(stage.pool.findings()) for stage in trajectory.stages),
            seconds=trajectory.seconds,
            errors=dict(Counter(call.error for call in trajectory.calls if call.error)),
            recall=report.by_shard.recall if report else None,
            precision=report.by_shard.precision if report else None,
            span_recall=report.by_span.recall if report and report.by_span else None,
            span_precision=report.by_span.precision if report and report.by_span else None,
            hops=dict(Counter(hop.fate.value for hop in report.hops)) if report else {},
            hop_stage=sum(found) / len(found) if found else None,
            judge={name: count for name, count in score.judge.to_dict().items() if count},
            second_agrees=score.agrees,
        )

    @classmethod
    def lost(cls, reason: str) -> "TrajectoryFacts":
        """A trajectory of which nothing came back: masked, all counts 0."""
        zero: dict[str, Any] = {f.name: 0 for f in fields(cls) if f.type == "int" or f.type is int}
        return cls(
            **zero,
            reward=None,
            accuracy=None,
            format=None,
            evidence=None,
            masked=reason,
            stop=StopReason.ERROR.value,
            seconds=0.0,
        )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "TrajectoryFacts":
        return cls(**data)
