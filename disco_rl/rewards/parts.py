"""The parts of a reward, and the one place where they are summed."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class Value:
    """A part that was scored, from 0 to 1. Raises `ValueError` outside of that."""

    value: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.value <= 1.0:  # refuses NaN too
            raise ValueError(f"a reward part lies between 0 and 1, not {self.value!r}")


@dataclass(frozen=True, slots=True)
class Abstention:
    """A part that has nothing to score, such as evidence where the sample names no gold hop."""

    reason: str


@dataclass(frozen=True, slots=True)
class Failure:
    """A part that could not be scored because something broke: the trajectory is masked."""

    reason: str


Part = Value | Abstention | Failure


@dataclass(frozen=True, slots=True)
class RewardParts:
    """Accuracy, format and evidence of one trajectory; `RewardWeights.total` sums them."""

    accuracy: Part
    format: Part
    evidence: Part

    @classmethod
    def failed(cls, reason: str) -> "RewardParts":
        """All three parts failed for the same reason."""
        failure = Failure(reason)
        return cls(failure, failure, failure)

    @property
    def failure(self) -> str | None:
        """The first part that failed, and why, or None."""
        for name, part in self.items():
            if isinstance(part, Failure):
                return f"{name}: {part.reason}"
        return None

    @property
    def failed_names(self) -> tuple[str, ...]:
        """The parts that failed."""
        return tuple(name for name, part in self.items() if isinstance(part, Failure))

    def items(self) -> list[tuple[str, Part]]:
        return [(f.name, getattr(self, f.name)) for f in fields(self)]

    def values(self) -> dict[str, float | None]:
        """Each part's value by name; None where it abstained or failed."""
        return {n: p.value if isinstance(p, Value) else None for n, p in self.items()}

    def to_record(self) -> dict[str, dict[str, Any]]:
        """For the trajectory record, e.g. `{"accuracy": {"value": 1.0}, ...}`."""
        record: dict[str, dict[str, Any]] = {}
        for name, part in self.items():
            match part:
                case Value(value):
                    record[name] = {"value": value}
                case Abstention(reason):
                    record[name] = {"abstention": reason}
                case Failure(reason):
                    record[name] = {"failure": reason}
        return record


@dataclass(frozen=True, slots=True)
class RewardWeights:
    """Weights of the parts, and how they are combined.

    With `gate_floor` None the plain sum (paper, equation 7: weights 1.0, 0.5, 0.5),

        R = wa a + wf f + we e;

    with a number g in [0, 1], format and evidence count by accuracy (after LongRLVR):

        R = wa a + (wf f + we e) (g + (1 - g) a).

    Worked, with a, f, e and then `paper` and `gated` (g = 0.1):
    1, 1, 1: 2.0 and 2.0. Right without evidence, 1, 1, 0: 1.5 and 1.5. Wrong in perfect form and
    grounded, 0, 1, 1: 1.0 and 0.1. Wrong, four of five calls parsed, half the evidence,
    0, 0.8, 0.5: 0.65 and 0.065. More in docs/reward.md. Raises `ValueError` for a weight below 0.
    """

    accuracy: float = 1.0
    format: float = 0.5
    evidence: float = 0.5
    gate_floor: float | None = None

    def __post_init__(self) -> None:
        for name in ("accuracy", "format", "evidence"):
            weight = getattr(self, name)
            if not (math.isfinite(weight) and weight >= 0.0):
                raise ValueError(f"reward weight {name} is {weight!r}; set a number of at least 0")
        if self.gate_floor is not None and not 0.0 <= self.gate_floor <= 1.0:
            raise ValueError(f"gate_floor is {self.gate_floor!r}; set it between 0 and 1, or null")

    def total(self, parts: RewardParts) -> float | None:
        """The reward, or None: the trajectory is masked, never zero.

        None where `masked` gives a reason. An abstained format or evidence adds nothing: it
        depends on the sample, not on the trajectory (an undecided judge fails the part), so all of
        a question lose the same term.
        """
        if self.masked(parts) is not None or not isinstance(parts.accuracy, Value):
            return None
        accuracy = parts.accuracy.value
        shaped = 0.0
        if isinstance(parts.format, Value):
            shaped += self.format * parts.format.value
        if isinstance(parts.evidence, Value):
            shaped += self.evidence * parts.evidence.value
        gate = 1.0
        if self.gate_floor is not None:
            gate = self.gate_floor + (1.0 - self.gate_floor) * accuracy
        return self.accuracy * accuracy + gate * shaped

    def masked(self, parts: RewardParts) -> str | None:
        """Why there is no reward: a part that has a weight failed, or accuracy abstained, so that
        nothing says which way to learn. A part of weight 0 is only shown: its failure changes no
        reward, so it masks nothing, and is counted (`disco/train/failed/PART`)."""
        for name, part in parts.items():
            if isinstance(part, Failure) and (getattr(self, name) or name == "accuracy"):
                return f"{name}: {part.reason}"
        if isinstance(parts.accuracy, Abstention):
            return f"accuracy: {parts.accuracy.reason}"
        return None

    @property
    def highest(self) -> float:
        """The reward of a perfect trajectory."""
        return self.accuracy + self.format + self.evidence


PRESETS: Mapping[str, RewardWeights] = {
    "paper": RewardWeights(),
    "gated": RewardWeights(gate_floor=0.1),
    "no_evidence": RewardWeights(evidence=0.0),
    "no_format": RewardWeights(format=0.0),
}


def weights_from(config: Mapping[str, Any]) -> RewardWeights:
    """Weights from a config of group `reward`. Raises `ValueError` naming a key that is missing."""
    try:
        floor = config["gate_floor"]
        return RewardWeights(
            accuracy=float(config["accuracy"]),
            format=float(config["format"]),
            evidence=float(config["evidence"]),
            gate_floor=None if floor is None else float(floor),
        )
    except KeyError as error:
        raise ValueError(f"the reward config lacks {error}; see configs/reward") from error
