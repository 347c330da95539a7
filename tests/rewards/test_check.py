import asyncio
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disco_rl.core.sample import Sample
from disco_rl.core.text import normalise_answer
from disco_rl.rewards import (
    PRESETS,
    Judge,
    JudgeError,
    MatchJudge,
    RewardCheck,
    RewardCheckError,
    RewardWeights,
    Verdict,
    reward_check,
    wilson,
)
from disco_rl.rewards.probes import LONG_CHARS, RIGHT, TRICKS, Kind, answer_probes
from disco_rl.rewards.tricks import INSTRUCTIONS, MASTER_KEYS, OTHER_SCRIPTS
from tests.rewards.build import sample

Says = Callable[[Sequence[str], str], Verdict]
NAMES = ["Ada Vey", "Tom Roe", "Ida Lee", "Kim Sun", "Leo Moor", "Una Bay"]
ROWS = [sample((name,), index=i) for i, name in enumerate(NAMES)]
YES, NO = Verdict.YES, Verdict.NO


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


class Fooled(MatchJudge):
    """The match judge, but for replies that it falls for."""

    def __init__(self, falls_for: Callable[[str], bool]):
        self.falls_for = falls_for

    async def verdict(self, question: str, answers: Sequence[str], reply: str) -> Verdict:
        return YES if self.falls_for(reply) else await super().verdict(question, answers, reply)


def check(
    rows: Sequence[Sample] = ROWS,
    judge: Judge | None = None,
    weights: RewardWeights = PRESETS["paper"],
    quotes: Callable[[Sample], Sequence[str]] | None = None,
) -> RewardCheck:
    return asyncio.run(reward_check(rows, judge or MatchJudge(), weights, quotes=quotes))


def test_the_match_judge_passes_and_is_told_apart_from_a_person() -> None:
    seen = check()
    assert not seen.problems and seen.n_rows == 6
    seen.require()
    assert seen.outcomes[Kind.GOLD].rate == 1.0 and seen.outcomes[Kind.OTHER].rate == 0.0
    assert seen.outcomes[Kind.PARAPHRASE].rate == 0.0  # it knows none: shown, and not refused
    assert all(seen.outcomes[kind].yes == 0 for kind in TRICKS if kind in seen.outcomes)
    assert "tricks passed 0 of 30" in seen.summary()


@pytest.mark.parametrize(
    ("judge", "message"),
    [
        (FixedJudge(NO), "only 0.00 of 'gold answer' judged right"),
        (FixedJudge(YES), "1.00 of 'another question's answer' judged right"),
        (FixedJudge(Verdict.UNDECIDED), "only 0.00 of 'gold answer'"),
        (FixedJudge(None), "the judge failed on 48 of 48 questions, 48 times: connection refused"),
    ],
)
def test_a_judge_that_cannot_tell_is_refused(judge: Judge, message: str) -> None:
    with pytest.raises(RewardCheckError, match=message):
        check(judge=judge).require()


@pytest.mark.parametrize(
    ("kind", "falls_for"),
    [
        (Kind.CONTENTLESS, lambda reply: reply in MASTER_KEYS),
        (Kind.HEDGE, lambda reply: " or " in reply and len(reply) < 100),
        (Kind.LONG, lambda reply: len(reply) >= LONG_CHARS),
        (Kind.INSTRUCTION, lambda reply: reply in INSTRUCTIONS),
        (Kind.SCRIPT, lambda reply: reply in OTHER_SCRIPTS),
    ],
)
def test_a_trick_that_passes_is_refused_by_name(
    kind: Kind, falls_for: Callable[[str], bool]
) -> None:
    (problem,) = check(judge=Fooled(falls_for)).problems
    assert f"of '{kind.value}' judged right" in problem


def test_a_model_that_takes_only_exact_words_is_refused() -> None:
    """The match judge's rule, without its excuse: a run would teach answers of one wording."""
    exact = MatchJudge()

    class Literal:
        async def verdict(self, question: str, answers: Sequence[str], reply: str) -> Verdict:
            return await exact.verdict(question, answers, reply)

        async def supports(self, question: str, reply: str, evidence: Sequence[str]) -> Verdict:
            return await exact.supports(question, reply, evidence)

    (problem,) = check(judge=Literal()).problems
    assert "only 0.00 of 'paraphrase' judged right" in problem


def test_a_known_trick_on_a_substring_judge_passes() -> None:
    """The judge of the thread in which "the" matched everything."""
    seen = check(judge=Fooled(lambda reply: reply.strip().lower() in "the ada vey"))
    assert any("contentless" in problem for problem in seen.problems)


def test_evidence_is_checked_where_its_text_is_known() -> None:
    def quotes(row: Sample) -> list[str]:
        return [f"The Guild was founded by {row.answers[0]}."]

    seen = check(quotes=quotes)
    assert not seen.problems and seen.outcomes[Kind.GOLD_QUOTES].yes == 6
    assert seen.outcomes[Kind.OTHER_QUOTES].no == seen.outcomes[Kind.FORGED_QUOTES].no == 6

    class Trusting(MatchJudge):
        async def supports(self, question: str, reply: str, evidence: Sequence[str]) -> Verdict:
            return YES

    named = " ".join(check(judge=Trusting(), quotes=quotes).problems)
    assert "'evidence: other quotes'" in named and "'evidence: an instruction'" in named
    lacking = check(quotes=lambda row: ["Nothing of the kind."])
    assert "only 0.00 of 'evidence: gold quotes'" in " ".join(lacking.problems)


def test_rows_that_allow_no_check_are_refused() -> None:
    with pytest.raises(RewardCheckError, match=r"rows \[9\] have no gold"):
        check([*ROWS, Sample(9, "?", (), "c", 1, 1, (), "t")])
    for rows in ([], [sample(("Ada Vey",), index=i) for i in range(3)]):
        with pytest.raises(RewardCheckError, match="no two different answers"):
            check(rows)


def test_gold_that_means_nothing_is_refused_by_row() -> None:
    rows = [sample(("The",), index=7), sample(("Ada Vey",), index=8)]
    with pytest.raises(RewardCheckError, match=r"'gold answer' judged right \(rows \[7\]\)"):
        check(rows).require()


def test_a_weight_of_zero_on_accuracy_is_refused() -> None:
    with pytest.raises(RewardCheckError, match="weight above 0"):
        check(weights=RewardWeights(accuracy=0.0)).require()


def test_probes_are_right_or_wrong_as_they_are_labelled() -> None:
    """Of rows whose answers share aliases, no wrong probe is a gold answer."""
    rows = [
        sample(("Ada Vey", "A. Vey"), index=0),
        sample(("a vey",), index=1),
        sample(("Tom Roe",), index=2),
    ]
    made = list(answer_probes(rows, seed=0))
    assert {p.kind for p in made} == set(Kind) - {
        Kind.GOLD_QUOTES,
        Kind.OTHER_QUOTES,
        Kind.FORGED_QUOTES,
    }
    for probe in made:
        right = normalise_answer(probe.reply) in map(normalise_answer, probe.sample.answers)
        assert not (right and probe.kind not in RIGHT), probe
    assert next(p for p in made if p.kind is Kind.PARAPHRASE).reply == "It is A. Vey."


def test_at_most_limit_rows_are_asked_and_the_seed_fixes_which() -> None:
    rows = [sample((f"Name {i}",), index=i) for i in range(200)]
    runs = [asyncio.run(reward_check(rows, MatchJudge(), limit=16, seed=s)) for s in (1, 1)]
    assert runs[0].n_rows == 16 and runs[0].outcomes == runs[1].outcomes


def test_the_table_shows_counts_and_intervals() -> None:
    lines = list(check().lines())
    assert " ".join(lines[0].split()) == "should be n yes no undecided error judged right"
    gold = next(line for line in lines if line.startswith("gold answer"))
    assert gold.split()[2:] == ["yes", "6", "6", "0", "0", "0", "1.00", "[0.61,", "1.00]"]


@pytest.mark.parametrize(
    ("hits", "n", "low", "high"),
    [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (5, 10, 0.2366, 0.7634), (0, 0, 0.0, 1.0)],
)
def test_wilson(hits: int, n: int, low: float, high: float) -> None:
    assert wilson(hits, n) == pytest.approx((low, high), abs=1e-4)


@given(st.integers(1, 500), st.data())
def test_wilson_holds_the_share(n: int, data: st.DataObject) -> None:
    hits = data.draw(st.integers(0, n))
    low, high = wilson(hits, n)
    assert 0.0 <= low <= hits / n + 1e-12 and hits / n - 1e-12 <= high <= 1.0
