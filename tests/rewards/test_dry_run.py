import asyncio
from collections.abc import Sequence

import pytest

from disco_rl.core.sample import Sample
from disco_rl.rewards import (
    Judge,
    JudgeError,
    MatchJudge,
    RewardCheckError,
    RewardWeights,
    Separation,
    Verdict,
    check_separates,
)
from tests.rewards.build import sample


class FixedJudge:
    """Says the same to everything; None breaks."""

    def __init__(self, says: Verdict | None):
        self.says = says

    async def verdict(self, question: str, answers: Sequence[str], reply: str) -> Verdict:
        if self.says is None:
            raise JudgeError("connection refused")
        return self.says

    async def supports(self, question: str, reply: str, evidence: Sequence[str]) -> Verdict:
        return await self.verdict(question, (), reply)


ROWS = [sample((name,), index=i) for i, name in enumerate(["Ada Vey", "Tom Roe", "Ida Lee"])]


def check(
    rows: list[Sample], judge: Judge | None = None, weights: RewardWeights | None = None
) -> Separation:
    return asyncio.run(check_separates(rows, judge or MatchJudge(), weights or RewardWeights()))


def test_match_judge_separates() -> None:
    seen = check(ROWS)
    assert (seen.n, seen.gold, seen.shuffled) == (3, 1.0, 0.0)
    assert seen.gold_reward == 1.5 and seen.shuffled_reward == 0.5


@pytest.mark.parametrize(
    ("judge", "message"),
    [
        (FixedJudge(Verdict.NO), "0.00 of the gold answers right"),
        (FixedJudge(Verdict.YES), "1.00 of other rows' answers right"),
        (FixedJudge(Verdict.UNDECIDED), "0.00 of the gold answers right"),
        (FixedJudge(None), "connection refused"),
    ],
)
def test_a_judge_that_cannot_tell_is_refused(judge: Judge, message: str) -> None:
    with pytest.raises(RewardCheckError, match=message):
        check(ROWS, judge)


def test_gold_that_means_nothing_is_refused_by_row() -> None:
    rows = [sample(("The",), index=7), sample(("Ada Vey",), index=8)]
    with pytest.raises(RewardCheckError, match=r"rows \[7\]"):
        check(rows)
    with pytest.raises(RewardCheckError, match=r"rows \[9\] have no gold"):
        check([*rows, Sample(9, "?", (), "c", 1, 1, (), "t")])


def test_rows_of_one_answer_are_refused() -> None:
    with pytest.raises(RewardCheckError, match="no two different answers"):
        check([sample(("Ada Vey",), index=i) for i in range(3)])
    with pytest.raises(RewardCheckError, match="no two different answers"):
        check([])


def test_an_alias_of_the_row_is_not_a_shuffled_answer() -> None:
    rows = [
        sample(("Ada Vey", "A. Vey"), index=0),
        sample(("a vey",), index=1),
        sample(("Tom Roe",), index=2),
    ]
    assert check(rows).shuffled == 0.0


def test_a_weight_of_zero_on_accuracy_is_refused() -> None:
    with pytest.raises(RewardCheckError, match="weight above 0"):
        check(ROWS, weights=RewardWeights(accuracy=0.0))


def test_at_most_limit_rows_are_asked_and_the_seed_fixes_which() -> None:
    rows = [sample((f"Name {i}",), index=i) for i in range(200)]
    seen = [
        asyncio.run(check_separates(rows, MatchJudge(), limit=16, seed=seed)) for seed in (1, 1)
    ]
    assert seen[0] == seen[1] and seen[0].n == 16
