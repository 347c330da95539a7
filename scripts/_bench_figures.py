"""What bench_step makes of verl's logged metrics. Pure: no training, no clock."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

PHASES: Mapping[str, str] = {
    "gen": "rollout, until the last trajectory is seen",
    "old_log_prob": "the trainer's own log-probabilities",
    "adv": "checks, credit, advantages",
    "update_actor": "forward, backward, one optimizer step",
    "update_weights": "weights to the rollout server",
    "rest": "of the step: handing out prompts, balancing",
}
"""verl's timers `timing_s/<phase>`, in order; `rest` is the step less all of them."""

WHOLE: Mapping[str, str] = {
    "step": "wall time",
    "trained": "of it, all but the rollout",
    "cpu": "processor time of all processes of the run, which other load moves less",
}


@dataclass(frozen=True)
class Arm:
    """One way to make a step, and how long it sleeps between looks at the replay buffer."""

    label: str
    stock: bool
    poll_s: float


ARMS: Mapping[str, Arm] = {
    "stock": Arm("stock", stock=True, poll_s=0.02),
    "disco": Arm("ours", stock=False, poll_s=0.02),
    "stock_poll": Arm("stock, its own polling", stock=True, poll_s=2.0),
}


def arm_of(step: int) -> str:
    """Which arm makes training step `step` (from 1). The first two swap places every round, so
    that none has always the same step before it."""
    turn, place = divmod(step - 1, len(ARMS))
    names = list(ARMS)
    if turn % 2:
        names[:2] = names[1::-1]
    return names[place]


class LogError(ValueError):
    """A metrics file that lacks what the comparison needs, or two runs that differ in work."""


@dataclass(frozen=True)
class Step:
    """One training step of a log. `seconds` by phase and of `WHOLE`."""

    seconds: Mapping[str, float]
    rows: int
    prompt_tokens: int
    output_tokens: int
    kl_of_update: float

    @classmethod
    def of(cls, metrics: Mapping[str, Any]) -> "Step":
        """Raises `LogError` naming the metric that is missing."""
        try:
            step = float(metrics["timing_s/step"])
            known = {
                phase: float(metrics[f"timing_s/{phase}"]) for phase in PHASES if phase != "rest"
            }
            prompt, output = metrics["prompt_length/mean"], metrics["response_length/mean"]
            total = metrics["perf/total_num_tokens"]
            kl, cpu = float(metrics["actor/ppo_kl"]), float(metrics["bench/cpu_s"])
            metrics["bench/stock"]
        except KeyError as missing:
            raise LogError(f"the log has no metric {missing}; verl changed its names") from None
        known["rest"] = step - sum(known.values())
        whole = {"step": step, "trained": step - known["gen"], "cpu": cpu}
        rows = round(total / (prompt + output))  # verl logs means over rows, and their sum
        return cls(
            {**known, **whole},
            rows,
            round(prompt * rows),
            round(output * rows),
            kl,
        )

    @property
    def work(self) -> tuple[int, int, int]:
        return self.rows, self.prompt_tokens, self.output_tokens


def read_steps(path: Path, drop: int) -> dict[str, list[Step]]:
    """The steps of verl's file logger by arm, without the first `drop` rounds.

    Raises `LogError` where a round is incomplete or none is left.
    """
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    steps: dict[str, list[Step]] = {name: [] for name in ARMS}
    for entry in map(json.loads, lines):
        name, data = arm_of(entry["step"]), entry["data"]
        steps[name].append(Step.of(data))
        if bool(data["bench/stock"]) != ARMS[name].stock:
            raise LogError(f"{path}: step {entry['step']} was not {name}'s: the arms don't change")
    counts = {len(done) for done in steps.values()}
    if len(counts) > 1 or min(counts) <= drop:
        raise LogError(f"{path}: {len(lines)} steps are no rounds of {len(ARMS)} beyond {drop}")
    return {name: done[drop:] for name, done in steps.items()}


def check_same_work(arms: Mapping[str, Sequence[Step]], output_tokens: int) -> tuple[int, int, int]:
    """Rows, prompt tokens and sampled tokens of the arms' steps, which must all be the same.

    `output_tokens` is the number that every row must have. A second update in a step would show
    as a KL from the sampling policy. Raises `LogError` naming arm and step.
    """
    first = next(iter(arms.values()))[0].work
    for name, steps in arms.items():
        for i, step in enumerate(steps):
            if step.work != first:
                raise LogError(
                    f"{name}, step {i}: (rows, prompt tokens, sampled tokens) = {step.work}, "
                    f"elsewhere {first}; the two can't be compared"
                )
            if step.output_tokens != output_tokens * step.rows:
                raise LogError(
                    f"{name}, step {i}: not every row has {output_tokens} sampled tokens"
                )
            if abs(step.kl_of_update) > 1e-5:
                raise LogError(f"{name}, step {i}: KL {step.kl_of_update}, so over one update")
    return first


@dataclass(frozen=True)
class Spread:
    """Median and quartiles, in seconds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        low, _, high = quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
        return cls(median(values), low, high)

    def to_dict(self) -> dict[str, float]:
        return {name: round(value, 4) for name, value in asdict(self).items()}


def spreads(steps: Sequence[Step]) -> dict[str, Spread]:
    """By phase, then of `WHOLE`."""
    return {name: Spread.of([s.seconds[name] for s in steps]) for name in (*PHASES, *WHOLE)}


@dataclass(frozen=True)
class Line:
    """One phase of two arms; medians in seconds.

    `ratio` is None where the base took no time. `share` is the difference as a share of the
    base's whole step, or of itself where the line is one of `WHOLE`: over the phases they add up to
    the step's ratio less 1, but for how medians of parts differ from the median of the whole.
    """

    phase: str
    base: float
    other: float
    ratio: float | None
    share: float


def compare(base: Mapping[str, Spread], other: Mapping[str, Spread]) -> list[Line]:
    lines = []
    for name in (*PHASES, *WHOLE):
        a, b = base[name].median, other[name].median
        whole = base[name if name in WHOLE else "step"].median
        lines.append(Line(name, a, b, b / a if a > 1e-4 else None, (b - a) / whole))
    return lines


def round_ratios(base: Sequence[Step], other: Sequence[Step], of: str = "step") -> list[float]:
    """Of each round, how much more of `of` (in `WHOLE`) the step of `other` took: neighbours in
    time, so that the machine's load weighs on both alike."""
    return [b.seconds[of] / a.seconds[of] for a, b in zip(base, other, strict=True)]
