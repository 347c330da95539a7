"""From a trajectory to one number, or to the reason why there is none."""

import logging
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from disco_rl.core.sample import Sample
from disco_rl.core.shards import Shard
from disco_rl.core.trajectory import Trajectory
from disco_rl.rewards import (
    EvidenceReport,
    Judge,
    JudgeLedger,
    RewardParts,
    RewardWeights,
    Value,
    Verdict,
    build_judge,
    charged_to,
    evidence_report,
    score,
    weights_from,
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Score:
    """Parts, and a reward without a reason to mask, or a reason without a reward.

    `agrees` is whether the second judge said the same as the first; None where it wasn't asked or
    gave no verdict.
    """

    parts: RewardParts
    reward: float | None
    masked: str | None
    evidence: EvidenceReport | None = None
    judge: JudgeLedger = field(default_factory=JudgeLedger)
    agrees: bool | None = None

    def to_record(self) -> dict[str, Any]:
        """For the trajectory record's `reward`."""
        return {
            "total": self.reward,
            **self.parts.to_record(),
            "evidence_report": self.evidence.to_record() if self.evidence else None,
            "judge": {name: n for name, n in self.judge.to_dict().items() if n},
            "second_judge_agrees": self.agrees,
        }


@dataclass(frozen=True)
class Scorer:
    """Judge and weights of a run. `second` judges a share of the trajectories for comparison."""

    judge: Judge
    weights: RewardWeights
    strict_format: bool = False
    evidence_by: str = "shard"
    second: Judge | None = None
    second_share: float = 0.0

    def __post_init__(self) -> None:
        if self.evidence_by not in ("shard", "span"):
            raise ValueError(
                f"disco.reward.evidence_by is {self.evidence_by!r}; choose shard or span"
            )

    @classmethod
    def from_config(
        cls,
        judge: Mapping[str, Any],
        reward: Mapping[str, Any],
        watch: Mapping[str, Any] | None = None,
        *,
        processes: int = 1,
    ) -> "Scorer":
        """For one of so many processes that share the judges' endpoints.

        Raises `ValueError` naming the key that is missing or unknown."""
        watch = watch or {}
        second = watch.get("second_judge")
        return cls(
            build_judge(judge, processes=processes),
            weights_from(reward),
            bool(reward.get("strict_format", False)),
            str(reward.get("evidence_by", "shard")),
            build_judge(second, processes=processes) if second else None,
            float(watch.get("second_share", 0.0)),
        )

    async def __call__(
        self, trajectory: Trajectory, sample: Sample, shards: Sequence[Shard] | None = None
    ) -> Score:
        """`shards` are the context's. Never raises but for cancellation."""
        report = None
        with charged_to(JudgeLedger()) as ledger:
            try:
                report = evidence_report(trajectory, sample, shards)
                parts = await score(
                    trajectory,
                    sample,
                    self.judge,
                    strict_format=self.strict_format,
                    spans_in=shards if self.evidence_by == "span" else None,
                )
            except Exception as error:  # a bug in a judge must not cost verl the whole prompt
                parts = RewardParts.failed(f"{type(error).__name__}: {error}")
        agrees = await self._second_opinion(trajectory, sample, parts)
        reward, masked = self.weights.total(parts), self.weights.masked(parts)
        return Score(parts, reward, masked, report, ledger, agrees)

    async def _second_opinion(
        self, trajectory: Trajectory, sample: Sample, parts: RewardParts
    ) -> bool | None:
        """Its failures, of whatever kind, are no failures of the trajectory: no verdict."""
        first, answer = parts.accuracy, trajectory.answer
        if self.second is None or not isinstance(first, Value) or not answer:
            return None
        # By content, so that a repeated run compares the same trajectories.
        if zlib.crc32(f"{sample.question}\n{answer}".encode()) / 2**32 >= self.second_share:
            return None
        try:
            said = await self.second.verdict(sample.question, sample.answers, answer)
        except Exception as error:
            logger.warning("the second judge gave no verdict: %s: %s", type(error).__name__, error)
            return None
        if said is Verdict.UNDECIDED:
            return None
        return (said is Verdict.YES) == (first.value == 1.0)
