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
