"""What one trajectory is known by in metrics: small, flat, sent from the rollout to the trainer."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from disco_rl.core.trajectory import CallKind, StopReason, Trajectory
from disco_rl.trainer.reward_bridge import Score


@dataclass(frozen=True)
class TrajectoryFacts:
    """Counts of one trajectory. A reward or part is None where masked or abstained; `failed` names
    the parts that failed, whether or not they have a weight and so mask it.

    `errors` counts the refused Driver calls by kind. `hops` says of each gold hop, in order, what
    became of it (`rewards.Fate`) and in which stage, from 0, it was first found or asked for; it is
    empty, and recall and precision None, where infrastructure ended the episode or lost calls.
    `judge` is the trajectory's share of the judge's ledger. Tokens are the Driver's unless named
    otherwise; `seconds` is wall time.
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
    worker_retries: int
    worker_hedges: int
    findings: int
    seconds: float
    worker_queued_s: float = 0.0
    worker_served_s: float = 0.0
    worker_dollars: float = 0.0
    context: str = ""
    shards: Mapping[int, int] = field(default_factory=dict)  # tokens of those asked about, by index
    errors: Mapping[str, int] = field(default_factory=dict)
    recall: float | None = None
    precision: float | None = None
    span_recall: float | None = None
    span_precision: float | None = None
    hops: tuple[tuple[str, int | None], ...] = ()
    judge: Mapping[str, float] = field(default_factory=dict)
    second_agrees: bool | None = None
    failed: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, trajectory: Trajectory, score: Score, masked: str | None = None
    ) -> "TrajectoryFacts":
        """`masked` is a reason beside the score's own."""
        masked = score.masked or masked
        values = score.parts.values()
        # An episode cut short says nothing of what would have been asked or found.
        cut = trajectory.stop is StopReason.ERROR or trajectory.workers.lost
        report = None if cut else score.evidence
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
            worker_retries=workers.retries,
            worker_hedges=workers.hedges,
            worker_queued_s=workers.queued_s,
            worker_served_s=workers.served_s,
            worker_dollars=workers.dollars,
            context=trajectory.context_id,
            shards=dict(workers.shards),
            findings=sum(len(stage.pool.findings()) for stage in trajectory.stages),
            seconds=trajectory.seconds,
            errors=dict(Counter(call.error for call in trajectory.calls if call.error)),
            recall=report.by_shard.recall if report else None,
            precision=report.by_shard.precision if report else None,
            span_recall=report.by_span.recall if report and report.by_span else None,
            span_precision=report.by_span.precision if report and report.by_span else None,
            hops=tuple((h.fate.value, h.stage) for h in report.hops) if report else (),
            judge={name: count for name, count in score.judge.to_dict().items() if count},
            second_agrees=score.agrees,
            failed=score.parts.failed_names,
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
