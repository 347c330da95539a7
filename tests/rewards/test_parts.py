import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disco_rl.rewards import (
    PRESETS,
    Abstention,
    Failure,
    Part,
    RewardParts,
    RewardWeights,
    Value,
    weights_from,
)

paper, gated = PRESETS["paper"], PRESETS["gated"]
shares = st.floats(0, 1)


def parts(a: float, f: float, e: float) -> RewardParts:
    return RewardParts(Value(a), Value(f), Value(e))


@pytest.mark.parametrize(
    ("a", "f", "e", "plain", "gate"),
    [
        (1, 1, 1, 2.0, 2.0),  # everything right
        (0, 1, 1, 1.0, 0.1),  # perfect form and evidence, wrong answer
        (1, 0, 0, 1.0, 1.0),  # right, but by luck
        (1, 0.5, 0, 1.25, 1.25),
        (0, 0.8, 0.5, 0.65, 0.065),
        (0, 0, 0, 0.0, 0.0),
    ],
)
def test_worked_totals(a: float, f: float, e: float, plain: float, gate: float) -> None:
    assert paper.total(parts(a, f, e)) == pytest.approx(plain)
    assert gated.total(parts(a, f, e)) == pytest.approx(gate)


@given(shares, shares, shares, shares)
def test_an_ablation_is_blind_to_its_part(a: float, f: float, e: float, other: float) -> None:
    bare, plain = PRESETS["no_evidence"], PRESETS["no_format"]
    assert bare.total(parts(a, f, e)) == bare.total(parts(a, f, other)) == a + 0.5 * f
    assert plain.total(parts(a, f, e)) == plain.total(parts(a, other, e)) == a + 0.5 * e


@given(shares, shares, shares)
def test_total_follows_its_formula(a: float, f: float, e: float) -> None:
    assert paper.total(parts(a, f, e)) == pytest.approx(a + 0.5 * f + 0.5 * e)
    gate = 0.1 + 0.9 * a
    assert gated.total(parts(a, f, e)) == pytest.approx(a + 0.5 * f * gate + 0.5 * e * gate)


@given(shares, shares, shares, shares)
def test_more_of_a_part_never_earns_less(a: float, f: float, e: float, more: float) -> None:
    for weights in PRESETS.values():
        base = weights.total(parts(a, f, e))
        assert base is not None and 0 <= base <= weights.highest
        for better in (
            parts(max(a, more), f, e),
            parts(a, max(f, more), e),
            parts(a, f, max(e, more)),
        ):
            total = weights.total(better)
            assert total is not None and total >= base - 1e-12


def test_gate_makes_a_wrong_answer_in_perfect_form_earn_less_than_a_right_bare_one() -> None:
    wrong, right = parts(0, 1, 1), parts(1, 0, 0)
    assert paper.total(wrong) == paper.total(right)
    wrong_total, right_total = gated.total(wrong), gated.total(right)
    assert wrong_total is not None and right_total is not None
    assert wrong_total < right_total / 5


def test_a_failure_anywhere_masks_and_is_never_zero() -> None:
    options: list[Part] = [Value(1.0), Abstention("n/a"), Failure("the judge timed out")]
    for made in itertools.starmap(RewardParts, itertools.product(options, repeat=3)):
        masked = any(isinstance(part, Failure) for _, part in made.items())
        masked = masked or isinstance(made.accuracy, Abstention)
        for weights in (paper, gated):
            assert (weights.total(made) is None) == masked == (weights.masked(made) is not None)


def test_a_part_without_weight_is_only_shown() -> None:
    made = RewardParts(Value(1.0), Value(0.5), Failure("the judge timed out"))
    assert PRESETS["no_evidence"].total(made) == pytest.approx(1.25)
    assert PRESETS["no_format"].total(made) is None
    without_accuracy = RewardWeights(accuracy=0.0)  # it gates and leads: it always counts
    assert without_accuracy.total(RewardParts.failed("down")) is None
    assert paper.masked(made) == "evidence: the judge timed out"


def test_an_abstained_part_adds_nothing() -> None:
    made = RewardParts(Value(1.0), Value(0.5), Abstention("no gold hop"))
    assert paper.total(made) == pytest.approx(1.25)
    assert made.values() == {"accuracy": 1.0, "format": 0.5, "evidence": None}
    assert made.to_record()["evidence"] == {"abstention": "no gold hop"}


def test_failure_names_its_part() -> None:
    made = RewardParts(Value(1.0), Value(1.0), Failure("timed out"))
    assert made.failure == "evidence: timed out" and made.failed_names == ("evidence",)
    assert RewardParts.failed("disk full").failure == "accuracy: disk full"


@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan, math.inf])
def test_a_part_outside_of_zero_to_one_cannot_exist(value: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        Value(value)


def test_weights_from_config() -> None:
    config = {"accuracy": 1, "format": 0.5, "evidence": 0.5, "gate_floor": 0.1}
    assert weights_from(config) == gated
    assert weights_from({**config, "gate_floor": None}) == paper
    with pytest.raises(ValueError, match="format"):
        weights_from({"accuracy": 1, "gate_floor": None})
    with pytest.raises(ValueError, match="gate_floor"):
        RewardWeights(gate_floor=2.0)
    with pytest.raises(ValueError, match="evidence"):
        RewardWeights(evidence=-1.0)
