"""Ours over verl's two asynchronous trainers.

Trajectories are sampled while the trainer trains, and stopped and taken up again where the weights
change, by verl's `FullyAsyncLLMServerClient`: the agent loop sees one generation. What is trained
on is still exactly what was sampled; only the weights that sampled it can be some steps older.
"""

import logging
from typing import Any

from omegaconf import DictConfig
from tensordict import TensorDict
from verl.trainer.ppo.v1 import (
    PPOTrainerColocateAsync,
    PPOTrainerSeparateAsync,
    register_trainer,
    trainer_separate_async,
)
from verl.utils import tensordict_utils as tu

from disco_rl.trainer.trainer import DiscoSteps

# Without rollout on the training GPUs verl 0.9.1 passes print's `flush` to a logger, which raises
# at level INFO, its default (trainer_separate_async.py, PPOTrainerSeparateAsync._setup).
trainer_separate_async.logger.setLevel(logging.WARNING)


class _Resuming(DiscoSteps):
    """A resumed run takes up the prompts under way, which verl keeps in its checkpoint."""

    def _reissue_inflight_prompts(self, partition_id: str = "train") -> int:
        manager: Any = self.agent_loop_manager
        self.agent_loop_manager: Any = _TrainPrompts(manager)
        try:
            return super()._reissue_inflight_prompts(partition_id)
        finally:
            self.agent_loop_manager = manager


class _TrainPrompts:
    """Tells the agent loop that prompts are for training, which verl's checkpoint leaves out."""

    def __init__(self, manager: Any):
        self._manager = manager

    def generate_sequences(self, batch: TensorDict) -> None:
        tu.assign_non_tensor_data(batch, "split", "train")
        self._manager.generate_sequences(batch)


@register_trainer("disco_colocate_async")
class DiscoColocateAsync(_Resuming, PPOTrainerColocateAsync):
    """`mode=colocate_async`: the same GPUs train and sample in turn, a batch ahead."""

    verl_mode = "colocate_async"


@register_trainer("disco_separate_async")
class DiscoSeparateAsync(_Resuming, PPOTrainerSeparateAsync):
    """`mode=separate_async`: some GPUs train and others sample, at the same time."""

    verl_mode = "separate_async"

    def __init__(self, config: DictConfig):
        steps = config.trainer.v1.separate_async.parameter_sync_step
        if steps != 1:
            raise ValueError(
                f"trainer.v1.separate_async.parameter_sync_step={steps}: our credit, metrics and "
                "alerts are of a whole batch, so set it to 1, and lower data.train_batch_size for "
                "more updates"
            )
        super().__init__(config)
