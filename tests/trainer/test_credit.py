"""Group statistics and segment weights, as numbers."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage

from disco_rl.trainer.credit import Weighting, group_advantages, segment_scales, shuffled


def verl_advantages(
    rewards: list[float], groups: list[str], *, normalise: bool = True
) -> np.ndarray:
    scores, _ = compute_grpo_outcome_advantage(
        torch.tensor(rewards, dtype=torch.float64)[:, None],
        torch.ones(len(rewards), 1),
        np.array(groups, dtype=object),
        norm_adv_by_std_in_grpo=normalise,
    )
    return scores[:, 0].numpy()


@pytest.mark.parametrize("normalise", [True, False])
def test_equals_verl_without_masks(normalise: bool) -> None:
    rewards = [1.0, 0.0, 0.5, 2.0, 0.25, 0.25, 1.75, 0.0]
    groups = ["a", "a", "a", "a", "b", "b", "b", "b"]
    ours = group_advantages(rewards, groups, normalise=normalise)
    np.testing.assert_allclose(ours.values, verl_advantages(rewards, groups, normalise=normalise))
    assert (ours.n_groups, ours.n_flat) == (2, 0)


def test_masked_trajectory_is_in_no_statistic() -> None:
    masked = group_advantages([1.0, None, 0.0, 0.5], ["a"] * 4)
    without = group_advantages([1.0, 0.0, 0.5], ["a"] * 3)
    assert masked.values[1] == 0.0
    np.testing.assert_array_equal(np.delete(masked.values, 1), without.values)
    as_zero = group_advantages([1.0, 0.0, 0.0, 0.5], ["a"] * 4)
    assert not np.allclose(as_zero.values[[0, 2, 3]], without.values)  # what a zero would do


def test_flat_groups_give_exactly_nothing_and_are_counted() -> None:
    third = 0.1 + 0.2  # not the same float as 0.3
    rewards = [third, 0.3, 0.3, 1.0, None, None, None, None, 0.0, 1.0]
    groups = ["flat"] * 3 + ["single"] * 3 + ["gone"] * 2 + ["good"] * 2
    result = group_advantages(rewards, groups)
    assert np.all(result.values[:8] == 0.0) and np.all(result.values[8:] != 0.0)
    assert (result.n_groups, result.n_flat) == (4, 3)


@given(st.lists(st.none() | st.floats(0, 2, allow_nan=False), max_size=40), st.integers(0, 9))
def test_shuffling_permutes_the_rewards_alone(rewards: list[float | None], seed: int) -> None:
    result = shuffled(rewards, seed)
    assert [r is None for r in result] == [r is None for r in rewards]
    assert sorted(r for r in result if r is not None) == sorted(r for r in rewards if r is not None)
    assert result == shuffled(rewards, seed)


def test_shuffling_moves_rewards_between_groups_and_depends_on_the_seed() -> None:
    rewards = [float(i) for i in range(16)]
    assert shuffled(rewards, 1) != rewards
    assert shuffled(rewards, 1) != shuffled(rewards, 2)


MODES = ["token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean"]

rows = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 30)), min_size=1, max_size=20)


def row_weights(tokens: np.ndarray, mode: str) -> np.ndarray:
    """What a row's tokens weigh together in the loss, up to a factor common to all rows."""
    return np.where(tokens > 0, 1.0, 0.0) if mode == "seq-mean-token-mean" else tokens.astype(float)


@given(rows, st.sampled_from(MODES))
def test_weights_by_trajectory_call_and_token(data: list[tuple[int, int]], mode: str) -> None:
    owner = np.array([trajectory for trajectory, _ in data])
    tokens = np.array([count for _, count in data])
    plain = row_weights(tokens, mode)
    for weighting in Weighting:
        weights = segment_scales(owner, tokens, weighting, mode) * plain
        assert np.all(weights[tokens == 0] == 0.0)
        np.testing.assert_allclose(weights.sum(), plain.sum())  # the learning rate keeps its sense
        live = tokens > 0
        if weighting is Weighting.TRAJECTORY:
            sums = [weights[(owner == t) & live].sum() for t in np.unique(owner[live])]
        elif weighting is Weighting.CALL:
            sums = list(weights[live])
        else:
            sums = list(weights[live] / tokens[live])
        np.testing.assert_allclose(sums, sums[0] if sums else 0.0)


def test_token_weighting_is_verls_token_mean() -> None:
    scales = segment_scales(np.array([0, 0, 1]), np.array([3, 9, 5]), Weighting.TOKEN, "token-mean")
    np.testing.assert_array_equal(scales, 1.0)


def test_call_weighting_is_verls_seq_mean_token_mean() -> None:
    scales = segment_scales(
        np.array([0, 0, 1]), np.array([3, 9, 5]), Weighting.CALL, "seq-mean-token-mean"
    )
    np.testing.assert_array_equal(scales, 1.0)


def test_a_mode_that_depends_on_the_micro_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="loss_agg_mode=seq-mean-token-sum-norm"):
        segment_scales(
            np.array([0]), np.array([1]), Weighting.TRAJECTORY, "seq-mean-token-sum-norm"
        )
