import pytest
from hypothesis import given
from hypothesis import strategies as st

from disco_rl.core.evidence import Finding
from disco_rl.core.sample import Hop
from disco_rl.core.shards import Shard
from disco_rl.rewards import cited_findings, evidence_score, span_score
from disco_rl.rewards.evidence import meets
from tests.rewards.build import finding, stage, trajectory


def hops(*shards: tuple[int, ...]) -> list[Hop]:
    return [Hop("?", "a", (), ids, (0, 1)) for ids in shards]


def f_beta(gold: list[Hop], *shards: int) -> float:
    return evidence_score(gold, [finding(shard, "q") for shard in shards]).f_beta


@pytest.mark.parametrize(
    ("gold", "cited", "expected"),
    [
        ([(2,)], [2], 1.0),
        ([(2,)], [3], 0.0),
        ([(2,)], [], 0.0),
        ([(2,), (5,)], [2, 5], 1.0),
        ([(2,), (5,)], [2], 5 * 1 * 0.5 / (4 * 1 + 0.5)),  # half the recall: 0.556
        ([(2,)], [2, 3], 5 * 0.5 * 1 / (4 * 0.5 + 1)),  # half the precision: 0.833
        ([(2,), (5,)], [2, 2, 2, 5], 1.0),  # several quotes of a shard count once
        ([(2, 3)], [3], 1.0),  # a passage over a shard's edge: either shard has it
        ([(2,), (2,)], [2], 1.0),  # two hops in one shard
    ],
)
def test_worked_f_beta(gold: list[tuple[int, ...]], cited: list[int], expected: float) -> None:
    assert f_beta(hops(*gold), *cited) == pytest.approx(expected)


def test_recall_weighs_more_than_precision() -> None:
    gold = hops((1,), (2,))
    assert f_beta(gold, 1, 2, 3, 4) > f_beta(gold, 1)


@given(st.integers(2, 64), st.data())
def test_citing_all_shards_lowers_the_score(n_shards: int, data: st.DataObject) -> None:
    some = st.sets(st.integers(0, n_shards - 1), min_size=1, max_size=n_shards - 1)
    gold = data.draw(some)
    needed = hops(*((shard,) for shard in gold))
    assert f_beta(needed, *range(n_shards)) < f_beta(needed, *gold) == 1.0


@given(st.sets(st.integers(0, 9), min_size=1), st.sets(st.integers(0, 9)))
def test_bounds_and_monotony(gold: set[int], cited: set[int]) -> None:
    needed = hops(*((shard,) for shard in gold))
    base = f_beta(needed, *cited)
    assert 0.0 <= base <= 1.0
    assert (base == 0.0) == gold.isdisjoint(cited)
    for shard in gold - cited:
        assert f_beta(needed, *cited, shard) > base
    for shard in set(range(10)) - gold - cited:
        assert f_beta(needed, *cited, shard) <= base


def test_no_hops_is_refused() -> None:
    with pytest.raises(ValueError, match="no gold hops"):
        evidence_score([], [])
    with pytest.raises(ValueError, match="no gold hops"):
        span_score([], [], SHARDS)


SHARDS = [Shard(i, 100 * i, 100 * i + 100, 25) for i in range(4)]


def at(shard: int, start: int, end: int) -> Finding:
    return Finding("n1", shard, "q", (start, end))


def placed(*spans: tuple[int, int]) -> list[Hop]:
    return [Hop("?", "a", (), (span[0] // 100,), span) for span in spans]


def test_by_span_another_sentence_of_the_gold_shard_earns_nothing() -> None:
    gold = placed((110, 140), (310, 330))
    right, beside = [at(1, 10, 40), at(3, 10, 30)], [at(1, 50, 90), at(3, 40, 60)]
    assert span_score(gold, right, SHARDS).f_beta == 1.0
    assert evidence_score(gold, beside).f_beta == 1.0
    assert span_score(gold, beside, SHARDS).f_beta == 0.0
    half = span_score(gold, [right[0], right[0], beside[0]], SHARDS)  # a repeated quote once
    assert (half.recall, half.precision) == (0.5, 0.5)
    assert half.f_beta == pytest.approx(5 * 0.25 / (4 * 0.5 + 0.5))


def test_a_quote_that_stands_nowhere_is_no_quote_by_span() -> None:
    gold = placed((110, 140))
    assert span_score(gold, [finding(1, "q", verbatim=False)], SHARDS).precision == 0.0
    assert span_score(gold, [at(9, 10, 40)], SHARDS).recall == 0.0  # no such shard


@pytest.mark.parametrize(
    ("quote", "gold", "met"),
    [
        ((0, 10), (0, 10), True),
        ((0, 100), (40, 50), True),  # the gold sentence within a passage
        ((40, 50), (0, 100), True),
        ((0, 10), (10, 20), False),  # they touch
        ((0, 11), (10, 20), False),  # one character
        ((0, 15), (10, 20), True),
        ((0, 0), (0, 10), False),
    ],
)
def test_spans_meet_by_half_of_the_shorter(
    quote: tuple[int, int], gold: tuple[int, int], met: bool
) -> None:
    assert meets(quote, gold) is met and meets(gold, quote) is met


def test_a_quote_that_is_not_verbatim_is_not_cited() -> None:
    made = trajectory([stage(0, "a", [finding(1, "real"), finding(2, "made up", verbatim=False)])])
    assert [f.shard for f in cited_findings(made)] == [1]


def test_earlier_stages_count_and_a_later_one_without_answer_does_not() -> None:
    made = trajectory(
        [
            stage(0, "hop one", [finding(1, "q")]),
            stage(1, "hop two", [finding(2, "q", node="n2"), finding(3, "q", node="n3")]),
            stage(2, None, [finding(4, "q")]),
        ]
    )
    assert [f.shard for f in cited_findings(made)] == [1, 2, 3]


def test_nothing_is_cited_without_an_answer() -> None:
    assert cited_findings(trajectory([stage(0, None, [finding(1, "q")])])) == []
    assert cited_findings(trajectory([])) == []
