"""Micro-batches hold every row once, within the budget, with little padding."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("verl", reason="the train extra isn't installed")

import torch
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu

from disco_rl.trainer.cpu.micro_batches import groups_by_length, select, split_to

LENGTHS = st.lists(st.integers(1, 400), min_size=1, max_size=80)


@given(lengths=LENGTHS, budget=st.integers(1, 4000))
def test_every_row_once_and_within_the_budget(lengths, budget):
    groups = groups_by_length(lengths, budget)
    assert sorted(row for group in groups for row in group) == list(range(len(lengths)))
    for group in groups:
        assert len(group) == 1 or max(lengths[row] for row in group) * len(group) <= budget


def test_like_lengths_go_together():
    lengths = [50, 400, 60, 390] * 20
    groups = groups_by_length(lengths, 2000)
    padded = sum(max(lengths[r] for r in group) * len(group) for group in groups)
    assert padded < 1.15 * sum(lengths)


@given(lengths=LENGTHS, more=st.integers(0, 20))
def test_ranks_can_agree_on_a_number(lengths, more):
    groups = groups_by_length(lengths, 1000)
    count = min(len(groups) + more, len(lengths))
    split = split_to(groups, count)
    assert len(split) == count and all(split)
    assert sorted(row for group in split for row in group) == list(range(len(lengths)))


def test_more_micro_batches_than_rows_are_refused():
    with pytest.raises(ValueError, match="2 rows can't make 3"):
        split_to([[0, 1]], 3)


@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=12), seed=st.integers(0, 99))
def test_selection_is_what_verl_would_select(lengths, seed):
    order = torch.randperm(len(lengths), generator=torch.Generator().manual_seed(seed)).tolist()
    groups = [order[: len(order) // 2 + 1], order[len(order) // 2 + 1 :]]
    groups = [group for group in groups if group]
    rows = [torch.arange(n) + 100 * i for i, n in enumerate(lengths)]
    data = TensorDict(
        {
            "input_ids": torch.nested.as_nested_tensor(rows, layout=torch.jagged),
            "weights": torch.arange(len(lengths), dtype=torch.float32),
        },
        batch_size=len(lengths),
    )
    tu.assign_non_tensor(data, temperature=1.0)
    tu.assign_non_tensor_stack(data, "names", [f"row {i}" for i in range(len(lengths))])
    for ours, group in zip(select(data, groups), groups, strict=True):
        theirs = tu.index_select_tensor_dict(data, group)
        assert set(ours.keys()) == set(theirs.keys()) and ours.batch_size == theirs.batch_size
        for mine, its in zip(ours["input_ids"], theirs["input_ids"], strict=True):
            assert torch.equal(mine, its)
        assert torch.equal(ours["weights"], theirs["weights"])
        for key in ("temperature", "names"):
            assert tu.get(ours, key) == tu.get(theirs, key)
