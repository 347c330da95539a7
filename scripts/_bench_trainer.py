"""bench_step's trainer: one run whose steps are verl's and ours in turn.

Actor, rollout server, agent loop process and queue are the same for both; a step of verl's goes
through verl's own methods wherever ours overrides one, with verl's replay buffer and a loader of
its own.
"""

from typing import Any

import psutil
from _bench_figures import ARMS, Arm, arm_of
from verl.trainer.ppo.v1 import PPOTrainerSync, register_trainer

from disco_rl.trainer.trainer import DiscoSteps, DiscoTrainer

_PER_RUN = {"fit", "_init_dataloader", "_build_replay_buffer"}


@register_trainer("bench")
class BenchTrainer(DiscoTrainer):
    """`trainer.v1.trainer_mode=bench`; `bench.stock_files` and `bench.calls` of the config."""

    arm: Arm = ARMS["disco"]

    def __init__(self, config: Any):
        super().__init__(config)
        self._groups = config.data.train_batch_size
        self._buffers = {
            False: self.replay_buffer,
            True: PPOTrainerSync._build_replay_buffer(self),
        }
        self._loaders: dict[bool, list[Any]] = {}
        self._cpu_before = 0.0

    def _init_dataloader(self) -> None:
        files = {True: self.config.bench.stock_files, False: self.config.data.train_files}
        for stock in (True, False):
            self._set_sizes(stock)
            self.config.data.train_files = files[stock]
            PPOTrainerSync._init_dataloader(self)
            self._loaders[stock] = [self.train_dataloader, None]

    def _set_sizes(self, stock: bool) -> None:
        groups = self._groups * (self.config.bench.calls if stock else 1)
        self.config.data.train_batch_size = groups
        # One update a step; ours makes one whatever this says.
        self.config.actor_rollout_ref.actor.ppo_mini_batch_size = groups

    def on_step_begin(self) -> None:
        super().on_step_begin()
        self._cpu_before = _cpu_seconds()
        self._loaders[self.arm.stock][1] = self.train_dataloader_it
        self.arm = ARMS[arm_of(self.global_steps)]
        self._set_sizes(self.arm.stock)
        self.train_dataloader, self.train_dataloader_it = self._loaders[self.arm.stock]
        self.replay_buffer = self._buffers[self.arm.stock]
        self.replay_buffer.poll_interval = self.arm.poll_s

    def _consume_sync_metrics(self) -> dict[str, Any]:
        """verl calls this at the very end of the step."""
        ours = {
            "bench/cpu_s": _cpu_seconds() - self._cpu_before,
            "bench/stock": float(self.arm.stock),
        }
        return super()._consume_sync_metrics() | ours


def _cpu_seconds() -> float:
    """Processor time so far of this process and all it started, Ray's included."""
    me = psutil.Process()
    total = 0.0
    for process in (me, *me.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


def _in_turn(name: str) -> Any:
    def method(self: BenchTrainer, *args: Any, **kwargs: Any) -> Any:
        side = PPOTrainerSync if self.arm.stock else DiscoTrainer
        return getattr(side, name)(self, *args, **kwargs)

    return method


_OWN = _PER_RUN | set(vars(BenchTrainer))
for _name in vars(DiscoSteps):
    if hasattr(PPOTrainerSync, _name) and not _name.startswith("__") and _name not in _OWN:
        setattr(BenchTrainer, _name, _in_turn(_name))
