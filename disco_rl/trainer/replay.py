"""verl's replay buffer, with group filtering that knows masked trajectories and has an end."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import transfer_queue as tq
from verl.trainer.ppo.v1.replay_buffer import (
    FILTER_GROUPS_REWARD_METRIC,
    ReplayBuffer,
    ReplayBufferAsync,
)

from disco_rl.trainer.credit import FLAT

_FIELD = "extra_fields"


class _FlatGroups(ReplayBuffer):
    """`algorithm.filter_groups` as in verl, but for two things.

    A masked trajectory has no reward, so a group is flat when its other trajectories agree; a
    group with none left is kept, since it says nothing about the Driver, and a failing judge would
    otherwise be asked for ever. And at most `max_refills` groups are replaced a step: after that
    flat groups are kept, where verl would go on for as long as the questions are too easy.
    """

    max_refills = 256
    _spent: tuple[int, int] = (-1, 0)  # (step, groups replaced in it)

    def _evict_terminal_groups(
        self, global_steps: int, partition_id: str, eviction_reasons: Any
    ) -> Any:
        step, spent = self._spent
        spent = spent if step == global_steps else 0
        stale, flat, failed, counts = eviction_reasons
        if flat:
            kept = set(sorted(flat)[max(self.max_refills - spent, 0) :])
            flat -= kept
            for uid in kept:  # seen as trainable from now on, by this poll too
                self._dapo_classification_cache[partition_id][uid] = None
            self._spent = (global_steps, spent + len(flat))
        return super()._evict_terminal_groups(
            global_steps, partition_id, (stale, flat, failed, counts)
        )

    def _dapo_filtered_keys(self, partition_id: str) -> tuple[set[str], Counter]:
        if partition_id == "val" or self.filter_groups_metric is None:
            return set(), Counter()
        finished = self.finished_keys[partition_id]
        cache = self._dapo_classification_cache[partition_id]
        for uid in cache.keys() - finished:
            del cache[uid]
        new = finished - cache.keys()
        # The reward stands on every row of a session; the first row is enough.
        keys = [
            key
            for key in self.partitions[partition_id]
            if key.rsplit("_", 2)[0] in new and key.endswith("_0")
        ]
        values: dict[str, list[float]] = defaultdict(list)
        if keys:
            data = tq.kv_batch_get(keys=keys, partition_id=partition_id, select_fields=[_FIELD])
            for key, extra in zip(keys, list(data[_FIELD]), strict=True):
                value = _value(getattr(extra, "data", extra), self.filter_groups_metric)
                if value is not None:
                    values[key.rsplit("_", 2)[0]].append(value)
        for uid in new:
            cache[uid] = flat_value(values[uid])
        flat = {uid: value for uid, value in cache.items() if value is not None}
        return set(flat), Counter(flat.values())


class DiscoReplayBuffer(_FlatGroups):
    """Of `mode=sync`."""


class DiscoReplayBufferAsync(_FlatGroups, ReplayBufferAsync):
    """Of the asynchronous modes, in which verl also drops or waits for what is stale."""


def flat_value(values: Iterable[float]) -> float | None:
    """The value that all of a group agree on, or None where they don't or there are none."""
    found = list(values)
    return found[0] if found and max(found) - min(found) <= FLAT else None


def _value(extra_fields: Mapping[str, Any], metric: str) -> float | None:
    facts = extra_fields["reward_extra_info"]["disco"]
    name = "reward" if metric == FILTER_GROUPS_REWARD_METRIC else metric
    if name not in facts:
        raise RuntimeError(
            f"algorithm.filter_groups.metric={metric} is none of reward, accuracy, format, evidence"
        )
    return None if facts["masked"] else facts[name]
