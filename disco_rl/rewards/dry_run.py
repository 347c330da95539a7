"""Before training: can the reward tell a gold answer from another question's."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from disco_rl.core.sample import Sample
from disco_rl.core.text import normalise_answer
from disco_rl.rewards.judge import Judge, JudgeError, Verdict
from disco_rl.rewards.parts import PRESETS, RewardParts, RewardWeights, Value


class RewardCheckError(ValueError):
    """The reward can't tell right from wrong on this data; says on which rows."""


@dataclass(frozen=True, slots=True)
class Separation:
    """Shares of gold and of shuffled answers judged right, over `n` rows, and their rewards."""

    n: int
    gold: float
    shuffled: float
    gold_reward: float
    shuffled_reward: float


async def check_separates(
    samples: Sequence[Sample],
    judge: Judge,
    weights: RewardWeights = PRESETS["paper"],
    *,
    limit: int = 64,
    seed: int = 0,
    min_gold: float = 0.9,
    max_shuffled: float = 0.1,
) -> Separation:
    """Judges the gold answer, and another row's, of at most `limit` rows drawn by `seed`.

    Raises `RewardCheckError` where fewer than `min_gold` of the gold answers are right, more than
    `max_shuffled` of the shuffled ones are, the weights make them earn the same, the rows have no
    two different answers, or the judge gives no verdict. The bounds leave room for a model's
    noise; the match judge gives 1 and 0.
    """
    rows = list(samples)
    if len(rows) > limit:
        rows = random.Random(seed).sample(rows, limit)
    bad = [row.index for row in rows if not row.answers]
    if bad:
        raise RewardCheckError(f"rows {bad[:10]} have no gold answer; rebuild the data")
    pairs = [(row, other) for row in rows if (other := _other_answer(row, rows)) is not None]
    if not pairs:
        raise RewardCheckError(
            f"{len(rows)} rows have no two different answers to shuffle; give more rows"
        )
    gold, missed = await _rate(judge, [(row, row.answers[0]) for row, _ in pairs], Verdict.YES)
    wrong, fooled = await _rate(judge, pairs, Verdict.NO)
    seen = Separation(
        n=len(pairs),
        gold=gold,
        shuffled=1.0 - wrong,
        gold_reward=_reward(weights, gold),
        shuffled_reward=_reward(weights, 1.0 - wrong),
    )
    if gold < min_gold:
        raise RewardCheckError(
            f"the reward calls only {gold:.2f} of the gold answers right (rows {missed[:10]}); "
            "check the judge and the gold answers before training"
        )
    if seen.shuffled > max_shuffled:
        raise RewardCheckError(
            f"the reward calls {seen.shuffled:.2f} of other rows' answers right "
            f"(rows {fooled[:10]}); check the judge before training"
        )
    if seen.gold_reward <= seen.shuffled_reward:
        raise RewardCheckError(
            f"gold and shuffled answers earn {seen.gold_reward:.2f} and "
            f"{seen.shuffled_reward:.2f}; give reward.accuracy a weight above 0"
        )
    return seen


def _other_answer(row: Sample, rows: Sequence[Sample]) -> str | None:
    """The answer of the next row around that isn't one of `row`'s own."""
    own = {normalise_answer(answer) for answer in row.answers}
    start = rows.index(row)
    for step in range(1, len(rows)):
        answer = rows[(start + step) % len(rows)].answers[0]
        if normalise_answer(answer) not in own:
            return answer
    return None


async def _rate(
    judge: Judge, replies: Sequence[tuple[Sample, str]], expected: Verdict
) -> tuple[float, list[int]]:
    """Share of the replies that got the expected verdict, and the rows of the others."""
    others = []
    for row, reply in replies:
        try:
            said = await judge.verdict(row.question, row.answers, reply)
        except JudgeError as error:
            raise RewardCheckError(f"the judge failed on row {row.index}: {error}") from error
        if said is not expected:
            others.append(row.index)
    return 1.0 - len(others) / len(replies), others


def _reward(weights: RewardWeights, accuracy: float) -> float:
    """The reward of a trajectory in good form without evidence, at this accuracy."""
    total = weights.total(RewardParts(Value(accuracy), Value(1.0), Value(0.0)))
    assert total is not None  # all three parts are values
    return total
