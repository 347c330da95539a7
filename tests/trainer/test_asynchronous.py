"""What the asynchronous trainers add to ours."""

from typing import Any

import pytest
import torch
from tensordict import TensorDict
from verl.trainer.ppo.v1 import PPOTrainer
from verl.utils import tensordict_utils as tu

from disco_rl.trainer.asynchronous import DiscoColocateAsync
from tests.trainer.rollout_fakes import make_config


class Manager:
    """Keeps what it is given to generate."""

    def __init__(self) -> None:
        self.given: list[TensorDict] = []

    def generate_sequences(self, batch: TensorDict) -> None:
        self.given.append(batch)


def test_prompts_of_a_resumed_run_are_of_the_training_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """verl's checkpoint has tensors and rows, and not the word that tells the agent loop."""

    def reissue(self: Any, partition_id: str) -> int:
        self.agent_loop_manager.generate_sequences(
            TensorDict({"index": torch.arange(2)}, batch_size=2)
        )
        return 2

    monkeypatch.setattr(PPOTrainer, "_reissue_inflight_prompts", reissue)
    trainer = DiscoColocateAsync.__new__(DiscoColocateAsync)
    trainer.agent_loop_manager = manager = Manager()
    assert trainer._reissue_inflight_prompts() == 2
    (batch,) = manager.given
    assert tu.get_non_tensor_data(batch, "split", default=None) == "train"
    assert trainer.agent_loop_manager is manager


def test_verl_gets_its_own_name_of_the_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    config = make_config()
    config.trainer.v1.trainer_mode = "disco_colocate_async"
    monkeypatch.setattr("disco_rl.trainer.trainer.check_config", lambda config: None)
    monkeypatch.setattr(
        PPOTrainer, "__init__", lambda self, config: seen.append(config.trainer.v1.trainer_mode)
    )
    trainer = DiscoColocateAsync.__new__(DiscoColocateAsync)
    monkeypatch.setattr(DiscoColocateAsync, "_begin_watch", lambda self: None)
    DiscoColocateAsync.__init__(trainer, config)
    assert seen == ["colocate_async"]
