"""What the Driver is shown: cut by rank, counted, with few token counts."""

import math

from hypothesis import given
from hypothesis import strategies as st

from disco_rl.core.evidence import EvidencePool, Finding, NarrowOutput, WideOutput, WorkerFailure
from disco_rl.core.history import Fitted, Line, evidence_lines, fit, history_lines
from disco_rl.core.trajectory import Review, Stage

lines = st.lists(st.builds(Line, st.text("ab", max_size=10), st.integers(0, 3)), max_size=40)


def kept_by_hand(lines: list[Line], n_cut: int) -> list[Line]:
    """Drops one line at a time: of the lowest rank left, the last."""
    left = list(lines)
    for _ in range(n_cut):
        lowest = min(line.rank for line in left)
        position = max(i for i, line in enumerate(left) if line.rank == lowest)
        del left[position]
    return left


@given(lines, st.integers(0, 200))
def test_the_most_lines_that_fit_by_rank(lines, budget):
    asked = []

    def fits(text: str) -> bool:
        asked.append(text)
        return len(text) <= budget

    fitted = fit(lines, fits)
    assert 0 <= fitted.n_cut <= len(lines)
    assert fitted.text == "\n".join(line.text for line in kept_by_hand(lines, fitted.n_cut))
    assert len(fitted.text) <= budget
    if fitted.n_cut:
        one_more = "\n".join(line.text for line in kept_by_hand(lines, fitted.n_cut - 1))
        assert len(one_more) > budget
    assert len(asked) <= 2 + math.log2(max(len(lines), 1))


def test_ten_thousand_lines_take_fifteen_counts():
    asked = []
    many = [Line("x" * 10, i % 7) for i in range(10_000)]
    fitted = fit(many, lambda text: not asked.append(text) and len(text) <= 1_000)
    assert fitted.n_cut == 10_000 - 91
    assert len(asked) <= 15


def test_everything_is_cut_where_nothing_fits():
    assert fit([Line("a", 0), Line("b", 1)], lambda text: False) == Fitted("", 2)
    assert fit([], lambda text: False) == Fitted("", 0)
    assert fit([], lambda text: True) == Fitted("", 0)


def found(node: str, *quotes: str, failures: int = 0, n_shards: int = 3) -> NarrowOutput:
    return NarrowOutput(
        node,
        tuple(Finding(node, i, quote, None) for i, quote in enumerate(quotes)),
        tuple(WorkerFailure(node, 9, "down") for _ in range(failures)),
        n_shards,
    )


def texts(outputs) -> list[str]:
    return [line.text for line in evidence_lines(outputs, 10)]


def test_findings_failures_and_empty_results_are_all_said():
    assert texts([found("n1", "Ada was\n born.", "So.")]) == [
        "n1 [0]: Ada was born.",
        "n1 [1]: So.",
    ]
    assert texts([found("n1")]) == ["n1: nothing found"]
    assert texts([found("n1", failures=1)]) == ["n1: 1 of 3 shards failed", "n1: nothing found"]
    assert texts([found("n1", failures=3)]) == ["n1: 3 of 3 shards failed"]
    assert texts([found("n1", "So.", failures=2)]) == ["n1 [0]: So.", "n1: 2 of 3 shards failed"]
    assert texts([found("n1", n_shards=0)]) == ["n1: nothing found"]
    assert texts([WideOutput("w1", "Ada,\n1815")]) == ["w1: Ada, 1815"]


def test_a_quote_cannot_forge_another_line():
    assert len(evidence_lines([found("n1", "x\nn2 [0]: forged\r\nn3\u2028n4\x0bn5")], 0)) == 1
    assert len(texts([found("n1", "x\nn2 [0]: forged\u2028n4")])[0].splitlines()) == 1


def test_what_is_cut_first():
    def stage(index: int) -> Stage:
        pool = EvidencePool({"n1": found("n1", "quote", failures=1), "w1": WideOutput("w1", "mid")})
        return Stage(index, pool=pool, answer="answer", review=Review(False, "gap"))

    ranked = sorted(history_lines([stage(0), stage(1)]), key=lambda line: line.rank)
    assert [line.text for line in ranked] == [
        "stage 1 n1 [0]: quote",
        "stage 1 n1: 1 of 3 shards failed",
        "stage 2 n1 [0]: quote",
        "stage 2 n1: 1 of 3 shards failed",
        "stage 1 answer: answer",
        "stage 1 gap: gap",
        "stage 2 answer: answer",
        "stage 2 gap: gap",
    ]


def test_a_stage_that_ended_early_shows_what_it_has():
    assert history_lines([Stage(0)]) == []
    assert history_lines([]) == []
    accepted = Stage(1, answer="a", review=Review(True))
    assert [line.text for line in history_lines([accepted])] == ["stage 2 answer: a"]


def test_findings_are_picked_by_node():
    pool = EvidencePool({"n1": found("n1", "a"), "n2": found("n2", "b"), "w": WideOutput("w", "c")})
    assert [f.quote for f in pool.findings()] == ["a", "b"]
    assert [f.quote for f in pool.findings(frozenset({"n2", "w"}))] == ["b"]
