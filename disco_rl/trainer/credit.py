"""Credit: from one reward a trajectory to one advantage a row, whatever the number of its calls.

A row is one Driver call. verl's own code takes GRPO's statistics once a trajectory, but then gives
every call the full advantage, so a trajectory with three calls pulls three times as hard as one
with a single call. Here each row's advantage is scaled so that the rows' weights in verl's
aggregated loss come out as `weighting` asks. Scaling an advantage by a positive factor scales its
clipped PPO loss by the same factor, so this is exact. It leaves the entropy and KL terms alone:
they keep verl's aggregation.
"""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

EPSILON = 1e-6  # verl's, added to the group's standard deviation
FLAT = 1e-8  # rewards closer than this are equal: what is left is rounding


class Weighting(str, Enum):
    """What weighs the same in the policy loss."""

    TRAJECTORY = "trajectory"  # every trajectory, however many calls and tokens it took
    CALL = "call"  # every Driver call
    TOKEN = "token"  # every sampled token


# How much a row of n tokens weighs in each of verl's loss_agg_mode: n, or the same as any other.
# The modes' denominators are common to all rows and cancel out. "seq-mean-token-sum-norm" is not
# here: without a fixed loss_scale_factor it divides by the longest row of each micro-batch.
_BY_TOKENS = {
    "token-mean": True,
    "token-sum": True,
    "seq-mean-token-sum": True,
    "seq-mean-token-mean": False,
}


@dataclass(frozen=True)
class GroupAdvantages:
    """Advantages, one a trajectory (0 where masked), and how many groups had no spread."""

    values: np.ndarray
    n_groups: int
    n_flat: int


def group_advantages(
    rewards: Sequence[float | None], groups: Sequence[Hashable], *, normalise: bool = True
) -> GroupAdvantages:
    """GRPO: (reward - mean) / (std + 1e-6) in each group, over the trajectories with a reward.

    `rewards` has one entry a trajectory; None is a masked one, which counts in no statistic. A
    group with no spread, or with one reward only, has advantage 0 exactly and is counted as flat.
    `normalise=False` leaves out the division (Dr. GRPO, arXiv 2503.20783). The deviation is the
    unbiased one, as in verl.
    """
    members: dict[Hashable, list[int]] = defaultdict(list)
    for index, (reward, group) in enumerate(zip(rewards, groups, strict=True)):
        members[group]  # a group whose trajectories are all masked is a group too
        if reward is not None:
            members[group].append(index)
    values = np.zeros(len(rewards))
    n_flat = 0
    for indices in members.values():
        scores = np.array([rewards[i] for i in indices], dtype=np.float64)
        if len(scores) < 2 or np.ptp(scores) <= FLAT:
            n_flat += 1
            continue
        centred = scores - scores.mean()
        values[indices] = centred / (scores.std(ddof=1) + EPSILON) if normalise else centred
    return GroupAdvantages(values, len(members), n_flat)


def shuffled(rewards: Sequence[float | None], seed: int) -> list[float | None]:
    """The control experiment: rewards permuted over the batch's trajectories, masked ones aside."""
    scored = [i for i, reward in enumerate(rewards) if reward is not None]
    result = list(rewards)
    for target, source in zip(scored, np.random.default_rng(seed).permutation(scored), strict=True):
        result[target] = rewards[source]
    return result


def segment_scales(
    trajectory: np.ndarray, tokens: np.ndarray, weighting: Weighting, loss_agg_mode: str
) -> np.ndarray:
    """The factor of each row's advantage, float64 of shape (rows,).

    `trajectory` names each row's trajectory by a number; `tokens` counts the row's tokens in the
    loss, 0 for a masked or a padding row, whose factor is 0. The rows' weights keep their sum, so
    that the learning rate means the same in every weighting. Raises `ValueError` for a
    `loss_agg_mode` that can't be weighted.
    """
    if loss_agg_mode not in _BY_TOKENS:
        raise ValueError(
            f"actor_rollout_ref.actor.loss_agg_mode={loss_agg_mode} can't be weighted; "
            f"choose one of {sorted(_BY_TOKENS)}"
        )
    counts = tokens > 0
    weight = np.where(counts, tokens if _BY_TOKENS[loss_agg_mode] else 1, 0).astype(np.float64)
    total = weight.sum()
    scales = np.zeros(len(tokens))
    if total == 0:
        return scales
    if weighting is Weighting.TRAJECTORY:
        names, place = np.unique(trajectory[counts], return_inverse=True)
        share = np.bincount(place, weights=weight[counts])
        scales[counts] = total / len(names) / share[place]
    elif weighting is Weighting.CALL:
        scales[counts] = total / counts.sum() / weight[counts]
    else:
        scales[counts] = total * tokens[counts] / tokens.sum() / weight[counts]
    return scales
