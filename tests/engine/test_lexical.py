"""The lexical score is a share of what was asked for, whatever the length of the context."""

import pytest

from disco_rl.engine.workers.lexical import LexicalIndex
from disco_rl.engine.workers.retriever import THRESHOLDS


@pytest.mark.parametrize("passages", [900, 60_000])
def test_a_name_alone_passes_for_the_fact_at_no_length(passages: int) -> None:
    """Each of 100 relations stands in a hundredth of the passages, a name in a few of them."""
    relations = [f"rel{chr(97 + i // 10)}{chr(97 + i % 10)}x" for i in range(100)]
    texts = [f"The {relations[i % 100]} of Om{i} is Ut{i}." for i in range(passages)]
    texts += [f"The {relations[3]} of Vranim is Korbake.", "Vranim is the home of Gofenhal."]
    match = LexicalIndex.build(texts).match(f"Find the {relations[3]} of Vranim.")
    fact, name = match.score[-2:]
    _, relative = THRESHOLDS["bm25"]
    assert fact == match.best == pytest.approx(1.0)
    assert name < relative * match.best and match.score[3] < name  # which has the relation alone


def test_a_passage_scores_alike_at_any_length() -> None:
    """What holds a name of five passages and not the relation, or the relation alone."""

    def scores(passages: int) -> list[float]:
        texts = [f"The rel{chr(97 + i % 20)}x of Om{i} is Ut{i}." for i in range(passages - 5)]
        texts += [f"Vranim is {word}." for word in ("old", "far", "big", "new", "red")]
        match = LexicalIndex.build(texts).match("Find the reldx of Vranim.")
        return [float(match.score[-1]), float(match.score[3])]

    assert scores(50_000) == pytest.approx(scores(1_000), abs=0.001)
