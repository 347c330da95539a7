"""The trainer's own steps over real rows: from the agent loop's outputs to the actor's orders."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import open_dict
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size
from verl.utils import tensordict_utils as tu

from disco_rl.trainer.metrics import names
from disco_rl.trainer.settings import TrainerSettings
from disco_rl.trainer.trainer import DiscoTrainer, StepFailed
from tests.trainer.memory_queue import MemoryQueue
from tests.trainer.rollout_fakes import (
    GOOD,
    PLAN,
    REJECT,
    FakeServer,
    byte_tokenizer,
    make_config,
    make_loop,
    row_kwargs,
)

SAMPLING = {"temperature": 1.0, "logprobs": True}
WRONG_TWICE = [PLAN, "Oum", REJECT, PLAN, "Oum", REJECT]
DOWN: list[str | Exception] = [RuntimeError("down")]


async def play(queue: MemoryQueue, groups: dict[str, list[list[Any]]]) -> KVBatchMeta:
    """Runs a session for every list of replies and stores its rows as verl's worker does."""
    tokenizer = byte_tokenizer()
    keys = []
    for uid, sessions in groups.items():
        for session, replies in enumerate(sessions):
            loop = make_loop(FakeServer(tokenizer, replies))
            outputs = await loop.run(SAMPLING, **row_kwargs(session, uid=uid, split="train"))
            for output in outputs[:-1]:
                output.reward_score = outputs[-1].reward_score
                output.extra_fields["reward_extra_info"] = outputs[-1].extra_fields[
                    "reward_extra_info"
                ]
            for index, output in enumerate(outputs):
                row = output.as_dict()
                row["uid"] = uid
                row["loss_mask"] = row["response_mask"]
                row["input_ids"] = torch.cat([row["prompts"], row["responses"]])
                row["old_log_probs"] = row["rollout_log_probs"] + 1e-6
                row["position_ids"] = torch.arange(len(row["input_ids"]))
                key = f"{uid}_{session}_{index}"
                queue.fields[key] = row
                queue.tags[key] = {"seq_len": len(row["input_ids"])}
                keys.append(key)
    return queue.meta(keys)


def make_trainer(folder: Path, **disco: Any) -> DiscoTrainer:
    """A trainer without verl's constructor, which starts Ray's processes."""
    config = make_config(**disco)
    config.trainer.default_local_dir = str(folder)
    with open_dict(config):
        config.algorithm.rollout_correction = {
            "rollout_is": None,
            "rollout_is_threshold": 2.0,
            "rollout_is_batch_normalize": False,
            "rollout_rs": None,
            "rollout_rs_threshold": None,
            "bypass_mode": False,
        }
    trainer = DiscoTrainer.__new__(DiscoTrainer)
    trainer.config = config
    trainer.settings = TrainerSettings.from_config(config)
    trainer.global_steps = 3
    trainer.use_critic = False
    trainer._trained_rows, trainer._dead_steps, trainer._alive = 0, 0, False
    trainer._logprob_diff_max = 0.0
    trainer._begin_watch()
    return trainer


GROUPS = {"u0": [GOOD, WRONG_TWICE], "u1": [WRONG_TWICE, GOOD]}


async def test_advantages_weigh_trajectories_alike(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    queue = MemoryQueue(monkeypatch)
    batch = await play(queue, GROUPS)
    metrics: dict[str, float] = {}
    make_trainer(tmp_path)._compute_advantage(batch, metrics)
    pull = {
        session: sum(
            row["advantages"].sum().item()
            for key, row in queue.fields.items()
            if key.startswith(session)
        )
        for session in ("u0_0", "u0_1", "u1_0", "u1_1")
    }
    assert pull["u0_0"] == pytest.approx(pull["u1_1"]) and pull["u0_0"] > 0
    assert pull["u0_1"] == pytest.approx(-pull["u0_0"], rel=1e-5)  # twice the calls, same pull
    for row in queue.fields.values():
        assert len(row["advantages"]) == len(row["responses"])
        assert len(set(row["advantages"].tolist())) == 1
        assert torch.equal(row["advantages"], row["returns"])
    assert metrics["disco/groups"] == 2 and metrics["disco/groups_flat"] == 0
    assert metrics["disco/rows"] == 18 and metrics["disco/rows_padding"] == 0
    assert metrics["disco/train/accuracy"] == 0.5 and metrics["disco/train/drop_rate"] == 0
    assert metrics["disco/train/calls"] == 4.5  # rows would say 5
    assert 0 < metrics["disco/logprob_diff_max"] < 1e-5
    assert set(names("train")) >= {name for name in metrics if name.startswith("disco/")}


async def test_masked_trajectory_is_out_of_update_and_statistics(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    queue = MemoryQueue(monkeypatch)
    batch = await play(queue, {"u0": [GOOD, WRONG_TWICE, DOWN], "u1": [GOOD, DOWN, DOWN]})
    metrics: dict[str, float] = {}
    trainer = make_trainer(tmp_path)
    trainer.config.actor_rollout_ref.rollout.n = 3
    trainer._compute_advantage(batch, metrics)
    for key in ("u0_2_0", "u1_1_0", "u1_2_0"):
        assert queue.fields[key]["advantages"].tolist() == [0.0]
        assert queue.fields[key]["loss_mask"].tolist() == [0]
    assert queue.fields["u0_0_0"]["advantages"][0] > 0
    assert queue.fields["u1_0_0"]["advantages"][0] == 0  # alone in its group: no comparison
    assert metrics["disco/train/masked_count"] == 3
    assert metrics["disco/train/drop_rate"] == 0.5
    assert metrics["disco/train/reward"] == pytest.approx((2.0 + 2.0 + 0.5) / 3, abs=0.35)
    assert metrics["disco/groups_flat"] == 1


async def test_padding_rows_change_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    queue = MemoryQueue(monkeypatch)
    batch = await play(queue, GROUPS)
    trainer = make_trainer(tmp_path)
    trainer._compute_advantage(batch, {})
    before = {key: row["advantages"].tolist() for key, row in queue.fields.items()}
    padded = upsample_batch_to_divisible_size(batch, 7, byte_tokenizer().eos_token_id)
    assert len(padded) == 21
    metrics: dict[str, float] = {}
    for key in padded.keys[18:]:  # what verl's engine writes for a padding row
        queue.fields[key]["old_log_probs"] = torch.zeros(1)
    trainer._compute_advantage(padded, metrics)
    assert metrics["disco/rows_padding"] == 3 and metrics["disco/rows"] == 18
    for key in padded.keys:
        expected = before.get(key, [0.0])
        assert queue.fields[key]["advantages"].tolist() == pytest.approx(expected)


async def test_shuffled_rewards_are_a_permutation_by_step(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    queue = MemoryQueue(monkeypatch)
    batch = await play(queue, {f"u{i}": [GOOD, WRONG_TWICE] for i in range(4)})

    def signs(step: int, **disco: Any) -> list[float]:
        trainer = make_trainer(tmp_path, **disco)
        trainer.global_steps = step
        trainer._compute_advantage(batch, {})
        sessions = [f"u{i}_{j}_0" for i in range(4) for j in range(2)]
        return [float(np.sign(queue.fields[key]["advantages"][0])) for key in sessions]

    plain = signs(1)
    assert plain == [1.0, -1.0] * 4
    seen = [signs(step, shuffle_rewards=True) for step in range(1, 9)]
    assert any(row != plain for row in seen) and len({tuple(row) for row in seen}) > 1
    assert signs(1, shuffle_rewards=True) == seen[0]


async def test_a_row_that_was_not_sampled_stops_the_step_and_is_saved(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    queue = MemoryQueue(monkeypatch)
    batch = await play(queue, GROUPS)
    queue.fields["u0_1_2"]["loss_mask"][0] = 0
    with pytest.raises(StepFailed, match=r"u0_1_2.*failed_step_3\.pt"):
        make_trainer(tmp_path)._compute_advantage(batch, {})
    saved = torch.load(tmp_path / "failed_step_3.pt", weights_only=False)
    assert saved["keys"] == batch.keys and len(saved["fields"]["responses"]) == 18


async def test_every_trajectory_failing_stops_the_run_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    queue = MemoryQueue(monkeypatch)
    batch = await play(queue, {"u0": [DOWN, DOWN], "u1": [DOWN, DOWN]})
    with pytest.raises(StepFailed, match=r"all 4 trajectories failed.*down"):
        make_trainer(tmp_path)._compute_advantage(batch, {})


async def test_a_dead_step_later_is_skipped_until_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    queue = MemoryQueue(monkeypatch)
    good = await play(queue, GROUPS)
    dead = await play(queue, {"u2": [DOWN, DOWN]})
    trainer = make_trainer(tmp_path, max_dead_steps=2)
    trainer._compute_advantage(good, {})
    metrics: dict[str, float] = {}
    trainer._compute_advantage(dead, metrics)
    trainer._update_actor(dead, metrics)  # there is no actor: an update would raise
    assert metrics["disco/update_skipped"] == 1 and metrics["disco/optimizer_steps"] == 0
    with pytest.raises(StepFailed, match="2 steps in a row"):
        trainer._compute_advantage(dead, {})


class FakeActor:
    """verl's worker group: keeps the orders, reports as `train_mini_batch` does."""

    def __init__(self, loss: float = 0.5, norm: float = 1.0):
        self.loss, self.norm = loss, norm
        self.orders: dict[str, Any] = {}

    def update_actor(self, batch: KVBatchMeta) -> TensorDict:
        self.orders = dict(batch.extra_info)
        updates = len(batch) // self.orders["mini_batch_size"]
        assert updates * self.orders["mini_batch_size"] == len(batch)
        reports = {"loss": [self.loss] * updates, "grad_norm": [self.norm] * updates}
        reports |= {"mfu": [0.1] * updates, "actor/pg_loss": [0.2] * updates}
        return tu.get_tensordict({}, non_tensor_dict={"metrics": reports})


@pytest.mark.parametrize(("updates", "size"), [(1, 18), (2, 9), (3, 6)])
async def test_one_update_whatever_the_number_of_rows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, updates: int, size: int
) -> None:
    queue = MemoryQueue(monkeypatch)
    batch = await play(queue, GROUPS)
    trainer = make_trainer(tmp_path, updates_per_step=updates)
    trainer.actor_rollout_wg = actor = FakeActor()
    metrics: dict[str, float] = {}
    batch = trainer._compute_advantage(batch, metrics)
    trainer._update_actor(batch, metrics)
    assert metrics["disco/optimizer_steps"] == updates
    assert actor.orders["mini_batch_size"] == size
    assert actor.orders["global_batch_size"] == 18 / updates
    assert metrics["actor/loss"] == 0.5 and metrics["perf/mfu/actor"] == pytest.approx(0.1)


@pytest.mark.parametrize("report", [{"loss": float("nan")}, {"norm": float("inf")}])
async def test_non_finite_loss_or_gradient_stops_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, report: dict[str, float]
) -> None:
    queue = MemoryQueue(monkeypatch)
    batch = await play(queue, GROUPS)
    trainer = make_trainer(tmp_path)
    trainer.actor_rollout_wg = FakeActor(**report)
    batch = trainer._compute_advantage(batch, {})
    with pytest.raises(StepFailed, match="step 3: loss"):
        trainer._update_actor(batch, {})
    assert (tmp_path / "failed_step_3.pt").is_file()


def test_rows_are_padded_to_the_ranks_only(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path)
    assert trainer._get_required_batch_multiple(1) == 1
    assert trainer._get_required_batch_multiple(8) == 8
    trainer = make_trainer(tmp_path, updates_per_step=3)
    assert trainer._get_required_batch_multiple(2) == 6


def test_a_finished_run_says_so_and_trains_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = make_trainer(tmp_path)
    trainer.global_steps = trainer.total_training_steps = 5
    trainer.fit(agent_loop_manager=None)  # verl's fit would need it
    assert "already finished: step 5 of 5, nothing to train" in capsys.readouterr().out


async def test_validation_metrics_are_means_over_trajectories(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer()
    loops = [make_loop(FakeServer(tokenizer, replies)) for replies in (GOOD, WRONG_TWICE, DOWN)]
    runs = await asyncio.gather(*(loop.run(SAMPLING, **row_kwargs()) for loop in loops))
    infos = [outputs[-1].extra_fields["reward_extra_info"] for outputs in runs]
    collected = {
        "reward": [outputs[-1].reward_score for outputs in runs],
        "acc": [info["acc"] for info in infos],
        "disco": [info["disco"] for info in infos],
    }
    uids = ["a", "b", "c"]
    metrics = make_trainer(tmp_path)._val_metrics_update(
        ["fake"] * 3,
        uids,
        collected,
        [3, 6, 1],
        {("fake", uid): 1 for uid in uids} | {("fake", "d"): 1},
    )
    assert metrics["disco/val/accuracy"] == 0.5 and metrics["disco/val/trajectories"] == 3
    assert metrics["disco/val/masked_count"] == 1 and metrics["disco/val/lost_count"] == 1
    assert metrics["disco/val/drop_rate"] == 0.5
    assert metrics["disco/val/stop/accepted"] == pytest.approx(1 / 3)
    assert metrics["val-core/fake/acc/mean@1"] == 0.25  # verl counts the failed ones as wrong
    assert {name for name in metrics if name.startswith("disco/")} <= set(names("val"))
