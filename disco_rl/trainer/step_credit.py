"""Credit for one step's rows: from facts and token counts to advantages and their metrics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from disco_rl.trainer.credit import Weighting, group_advantages, segment_scales, shuffled
from disco_rl.trainer.facts import TrajectoryFacts


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the batch: verl's key `<uid>_<session>_<index>`, and its tokens in the loss."""

    key: str
    tokens: int
    padding: bool = False

    @property
    def trajectory(self) -> str:
        return self.key.rsplit("_", 1)[0]

    @property
    def group(self) -> str:
        return self.key.rsplit("_", 2)[0]


@dataclass(frozen=True)
class StepCredit:
    """One scalar advantage a row, how many rows are trained on, and metrics of the step."""

    advantages: np.ndarray
    trained_rows: int
    metrics: dict[str, float]


def assign(
    rows: Sequence[Row],
    facts: Mapping[str, TrajectoryFacts],
    *,
    weighting: Weighting,
    loss_agg_mode: str,
    normalise: bool,
    shuffle_seed: int | None = None,
) -> StepCredit:
    """`facts` by trajectory name. `shuffle_seed` permutes the rewards first (the control)."""
    names = sorted({row.trajectory for row in rows if not row.padding})
    place = {name: i for i, name in enumerate(names)}
    rewards: list[float | None] = [facts[name].reward for name in names]
    if shuffle_seed is not None:
        rewards = shuffled(rewards, shuffle_seed)
    groups = group_advantages(
        rewards, [name.rsplit("_", 1)[0] for name in names], normalise=normalise
    )
    owner = np.array([-1 if row.padding else place[row.trajectory] for row in rows])
    tokens = np.array([0 if row.padding else row.tokens for row in rows])
    scales = segment_scales(owner, tokens, weighting, loss_agg_mode)
    scalars = np.array([groups.values[i] if i >= 0 else 0.0 for i in owner])
    padding = sum(row.padding for row in rows)
    metrics = {
        "disco/groups": float(groups.n_groups),
        "disco/groups_flat": float(groups.n_flat),
        "disco/rows": float(len(rows) - padding),
        "disco/rows_padding": float(padding),
    }
    return StepCredit(scalars * scales, int((tokens > 0).sum()), metrics)
