"""Group filtering: flat groups are replaced, within a bound, and masks are not zeros."""

from typing import Any

import pytest

from disco_rl.trainer.facts import TrajectoryFacts
from disco_rl.trainer.replay import DiscoReplayBuffer, DiscoReplayBufferAsync, flat_value
from tests.trainer.memory_queue import MemoryQueue

Groups = dict[str, list[float | None]]
BUFFERS = {"sync": DiscoReplayBuffer, "colocate_async": DiscoReplayBufferAsync}
both = pytest.mark.parametrize("mode", BUFFERS)


class Questions:
    """Refills with groups from a list; keeps how many were asked for."""

    def __init__(self, queue: MemoryQueue, refills: list[list[float | None]]):
        self.queue, self.refills, self.asked = queue, refills, 0

    def add(self, uid: str, rewards: list[float | None]) -> None:
        self.queue.tags[uid] = {"is_prompt": True, "status": "finished", "global_steps": 1}
        for session, reward in enumerate(rewards):
            fact = TrajectoryFacts.lost("down").to_dict()
            if reward is not None:
                fact |= {"reward": reward, "masked": None}
            for index in range(2):
                key = f"{uid}_{session}_{index}"
                self.queue.fields[key] = {"extra_fields": {"reward_extra_info": {"disco": fact}}}
                self.queue.tags[key] = {"status": "success"}

    def __call__(self, count: int) -> None:
        for _ in range(count):
            self.asked += 1
            self.add(f"refill{self.asked}", self.refills[(self.asked - 1) % len(self.refills)])


def sample(
    monkeypatch: pytest.MonkeyPatch,
    groups: Groups,
    refills: list[list[float | None]],
    *,
    max_refills: int = 100,
    metric: str | None = "reward",
    mode: str = "sync",
) -> tuple[set[str], int, dict[str, Any]]:
    queue = MemoryQueue(monkeypatch)
    questions = Questions(queue, refills)
    for uid, rewards in groups.items():
        questions.add(uid, rewards)
    buffer = BUFFERS[mode](
        trainer_mode=mode,
        trainer_config={},
        max_off_policy_threshold=4,
        max_off_policy_strategy="drop",
        sampler_kwargs={},
        poll_interval=0.0,
        refill_fn=questions,
        filter_groups_metric=metric,
        train_batch_size=2,
        gen_batch_size=1,
    )
    buffer.max_refills = max_refills
    batch, metrics = buffer.sample(global_steps=1, partition_id="train", batch_size=2)
    return {key.rsplit("_", 2)[0] for key in batch.keys}, questions.asked, metrics


@both
def test_flat_groups_are_replaced(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    groups = {"a": [0.5, 0.5], "b": [0.0, 1.0]}
    uids, asked, metrics = sample(monkeypatch, groups, [[1.0, 0.0]], mode=mode)
    assert "a" not in uids and len(uids) == 2
    assert asked > 0 and metrics["training/filter_groups/evicted_samples"] == 1


def test_without_filtering_nothing_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = {"a": [0.5, 0.5], "b": [0.0, 1.0]}
    uids, asked, _ = sample(monkeypatch, groups, [], metric=None)
    assert uids == {"a", "b"} and asked == 0


@both
def test_a_masked_trajectory_makes_no_spread(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    """verl reads its 0 as a reward and would keep the group."""
    groups = {"a": [0.5, 0.5, None], "b": [0.0, 1.0, None]}
    uids, _, metrics = sample(monkeypatch, groups, [[1.0, 0.0]], mode=mode)
    assert "a" not in uids and metrics["training/filter_groups/evicted_samples"] == 1


@both
def test_a_group_that_failed_whole_is_kept(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    uids, asked, _ = sample(monkeypatch, {"a": [None, None], "b": [0.0, 1.0]}, [], mode=mode)
    assert uids == {"a", "b"} and asked == 0


@both
def test_refilling_ends_when_all_are_flat(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    groups: Groups = {"a": [1.0, 1.0], "b": [1.0, 1.0]}
    uids, asked, metrics = sample(monkeypatch, groups, [[1.0, 1.0]], max_refills=5, mode=mode)
    assert len(uids) == 2
    assert metrics["training/filter_groups/evicted_samples"] == 5 and asked <= 10


def test_an_unknown_metric_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match=r"filter_groups\.metric=colour"):
        sample(monkeypatch, {"a": [1.0, 1.0], "b": [1.0, 0.0]}, [], metric="colour")


def test_flat_value() -> None:
    assert flat_value([0.3, 0.1 + 0.2]) == 0.3
    assert flat_value([0.3, 0.4]) is None and flat_value([]) is None
