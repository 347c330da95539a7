"""From a trajectory to one number, or to the reason why there is none."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from disco_rl.core.sample import Sample
from disco_rl.core.trajectory import Trajectory
from disco_rl.rewards import (
    Abstention,
    Judge,
    RewardParts,
    RewardWeights,
    build_judge,
    score,
    weights_from,
)


@dataclass(frozen=True)
class Scorer:
    """Judge and weights of a run."""

    judge: Judge
    weights: RewardWeights
    strict_format: bool = False

    @classmethod
    def from_config(cls, judge: Mapping[str, Any], reward: Mapping[str, Any]) -> "Scorer":
        """Raises `ValueError` naming the key that is missing or unknown."""
        strict = bool(reward.get("strict_format", False))
        return cls(build_judge(judge), weights_from(reward), strict)

    async def __call__(
        self, trajectory: Trajectory, sample: Sample
    ) -> tuple[RewardParts, float | None, str | None]:
        """Parts, reward, and why the trajectory is masked. Never raises but for cancellation.

        A reward without a reason to mask, or a reason without a reward; never both or neither.
        """
        try:
            parts = await score(trajectory, sample, self.judge, strict_format=self.strict_format)
        except Exception as error:  # a bug in a judge must not cost verl the whole prompt
            parts = RewardParts.failed(f"{type(error).__name__}: {error}")
        reward = self.weights.total(parts)
        if reward is not None:
            return parts, reward, None
        if isinstance(parts.accuracy, Abstention):
            return parts, None, parts.failure or f"accuracy: {parts.accuracy.reason}"
        return parts, None, parts.failure or "no reward"
