"""95% intervals: over questions by bootstrap, over seeds by Student's t."""

import math
import random
from collections.abc import Sequence

# Two-sided 95% quantiles of Student's t by degrees of freedom.
_T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


def bootstrap(values: Sequence[float], draws: int = 2000, seed: int = 0) -> tuple[float, float]:
    """The 95% percentile interval of the mean. Raises `ValueError` for no values."""
    if not values:
        raise ValueError("no values to take an interval of")
    rng = random.Random(seed)
    n = len(values)
    means = sorted(sum(rng.choices(values, k=n)) / n for _ in range(draws))
    return means[int(0.025 * draws)], means[int(0.975 * draws) - 1]


def over_seeds(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean and 95% t interval of one figure a seed. Raises `ValueError` for under 2 or over 11."""
    n = len(values)
    if not 2 <= n <= len(_T95) + 1:
        raise ValueError(f"an interval over seeds takes 2 to {len(_T95) + 1} values, not {n}")
    mean = sum(values) / n
    spread = math.sqrt(sum((v - mean) ** 2 for v in values) / (n - 1))
    half = _T95[n - 2] * spread / math.sqrt(n)
    return mean, mean - half, mean + half


def paired(
    ours: Sequence[float], theirs: Sequence[float], draws: int = 2000, seed: int = 0
) -> tuple[float, float, float]:
    """Mean difference and its 95% percentile interval, over questions that both answered.

    Paired: a question's two scores are drawn together. Raises `ValueError` for unequal lengths.
    """
    if len(ours) != len(theirs):
        raise ValueError(f"paired values must be as many: {len(ours)} and {len(theirs)}")
    gaps = [a - b for a, b in zip(ours, theirs, strict=True)]
    low, high = bootstrap(gaps, draws, seed)
    return sum(gaps) / len(gaps), low, high
