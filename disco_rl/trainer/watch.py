"""Looks at a run's metrics for what goes wrong slowly, and says so once when it begins."""

import asyncio
import logging
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any

from disco_rl.rewards.canaries import CanaryReport, ask_canaries, canary_judge

logger = logging.getLogger(__name__)

PARTS = ("accuracy", "format", "evidence")
METRICS: Mapping[str, str] = {
    "disco/canary/right": "share of the canaries with a verdict that got the known one",
    "disco/canary/errors": "canaries that brought no verdict",
    "disco/alert/canary": "1: the judge got a canary wrong, or answered none",
    "disco/alert/format_up_accuracy_down": "1: format rose and accuracy fell over the window",
    **{f"disco/alert/saturated/{p}": f"1: {p} is all but 0 or 1 over the window" for p in PARTS},
    "disco/alert/masked": "1: too many trajectories are masked or lost in this step",
    "disco/alert/agreement": "1: the second judge often says otherwise, over the window",
}


@dataclass(frozen=True)
class WatchSettings:
    """Group `disco.watch` of the config. Raises `ValueError` naming what can't be used.

    canaries_every: steps between canaries through the judge; 0: never
    window: steps that trends and saturation are taken over
    change: of a mean part between the window's halves, for "rose" and "fell"
    masked_share: of a step's expected trajectories, masked or lost, that raises an alert
    second_judge, second_share: a judge's config, and the share of trajectories that it judges too
    agreement: least agreement of the two
    keep_best: the validation metric whose best checkpoint is kept in RUN/best, or None
    patience: validations in a row without a better one after which the run stops, or None
    """

    canaries_every: int = 0
    window: int = 10
    change: float = 0.05
    masked_share: float = 0.2
    second_judge: Any = None
    second_share: float = 0.1
    agreement: float = 0.8
    keep_best: str | None = None
    patience: int | None = None

    def __post_init__(self) -> None:
        if self.window < 2:
            raise ValueError(f"disco.watch.window must be at least 2 steps, not {self.window}")
        if self.patience is not None and (self.patience < 1 or not self.keep_best):
            raise ValueError(
                f"disco.watch.patience={self.patience} needs a metric in disco.watch.keep_best, "
                "and at least 1"
            )

    @classmethod
    def from_config(cls, config: Mapping[str, Any] | None) -> "WatchSettings":
        given = dict(config or {})
        known = [f.name for f in fields(cls)]
        if unknown := sorted(set(map(str, given)) - set(known)):
            raise ValueError(f"disco.watch: unknown keys {unknown}; known: {known}")
        return cls(**given)


class Watch:
    """Alerts of one run, from the metrics of each training step."""

    def __init__(self, settings: WatchSettings, judge: Mapping[str, Any] | None = None):
        self.settings = settings
        self._judge = judge
        self._seen: dict[str, deque[float]] = {
            name: deque(maxlen=settings.window) for name in (*PARTS, "judge_agreement")
        }
        self._raised: set[str] = set()

    def step(self, step: int, metrics: Mapping[str, float]) -> dict[str, float]:
        """What `metrics` (`disco/train/*`) of this step add: canaries and alerts, each 0 or 1.

        An alert that can't be told yet, for want of steps or values, is left out.
        """
        added: dict[str, float] = {}
        for name, values in self._seen.items():
            if (value := metrics.get(f"disco/train/{name}")) is not None:
                values.append(value)
        every = self.settings.canaries_every
        if every and self._judge is not None and step % every == 0:
            added |= self._canaries(asyncio.run(ask_canaries(canary_judge(self._judge))))
        self._alert(added, "masked", *self._masked(metrics))
        self._alert(added, "format_up_accuracy_down", *self._drift())
        for part in PARTS:
            self._alert(added, f"saturated/{part}", *self._saturated(part))
        self._alert(added, "agreement", *self._agreement())
        return added

    def _canaries(self, report: CanaryReport) -> dict[str, float]:
        judged = report.n - report.errors
        added = {"disco/canary/errors": float(report.errors)}
        if judged:
            added["disco/canary/right"] = report.right / judged
        wrong = [f"{c.reply!r} to {c.question!r} isn't a {c.verdict.value}" for c in report.wrong]
        told = f"the judge has changed: {wrong}" if wrong else "the judge gives no verdict"
        self._alert(added, "canary", bool(wrong) or not judged, told)
        return added

    def _masked(self, metrics: Mapping[str, float]) -> tuple[bool | None, str]:
        share = metrics.get("disco/train/drop_rate")
        bound = self.settings.masked_share
        told = f"{share or 0:.2f} of the trajectories are masked or lost, over masked_share={bound}"
        return None if share is None else share > bound, told

    def _drift(self) -> tuple[bool | None, str]:
        form, accuracy = self._rise("format"), self._rise("accuracy")
        if form is None or accuracy is None:
            return None, ""
        told = f"format rose by {form:.2f} while accuracy fell by {-accuracy:.2f}"
        change = self.settings.change
        return form >= change and accuracy <= -change, f"{told}: is form easier to earn?"

    def _rise(self, name: str) -> float | None:
        values = list(self._seen[name])
        if len(values) < self.settings.window:
            return None
        half = len(values) // 2
        return _mean(values[-half:]) - _mean(values[:half])

    def _saturated(self, part: str) -> tuple[bool | None, str]:
        values = self._seen[part]
        if len(values) < self.settings.window:
            return None, ""
        mean = _mean(values)
        return not 0.01 < mean < 0.99, f"{part} is {mean:.3f}: it teaches nothing any more"

    def _agreement(self) -> tuple[bool | None, str]:
        values = self._seen["judge_agreement"]
        if not values:
            return None, ""
        mean, least = _mean(values), self.settings.agreement
        return mean < least, f"the two judges agree on {mean:.2f}, under agreement={least}"

    def _alert(self, added: dict[str, float], name: str, bad: bool | None, told: str) -> None:
        if bad is None:
            return
        added[f"disco/alert/{name}"] = float(bad)
        if bad and name not in self._raised:
            logger.warning("alert %s: %s", name, told)
        (self._raised.add if bad else self._raised.discard)(name)


def _mean(values: Collection[float]) -> float:
    return sum(values) / len(values)
