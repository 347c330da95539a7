"""Runs verl's v1 trainer in the launching process."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ray
from omegaconf import DictConfig, OmegaConf


class TaskRunner:
    """Does what verl's TaskRunnerV1 does, with our trainers known and no process of its own.

    verl makes its runner a Ray actor; on one machine that costs an import of verl (several
    seconds) and takes Ctrl-C, exit codes and tracebacks away from the command. `run_ppo` calls
    `remote()` and `run.remote(config)`, so this class offers both and runs in place.
    """

    def __init__(self) -> None:
        self.trainer: Any = None

    @classmethod
    def remote(cls) -> TaskRunner:
        return cls()

    @property
    def run(self) -> _Call:
        return _Call(self._run)

    def _run(self, config: DictConfig) -> None:
        import transfer_queue as tq

        config.transfer_queue.enable = True
        OmegaConf.resolve(config)
        # Its two processes start while this one imports the trainer.
        with ThreadPoolExecutor(max_workers=1) as pool:
            queue = pool.submit(tq.init, config.transfer_queue)
            import disco_rl.trainer.asynchronous  # noqa: F401  (verl, ours beside its trainers)

            queue.result()
        from verl.trainer.ppo.v1 import AgentLoopManagerTQ, get_trainer_cls
        from verl.utils.import_utils import load_class_from_fqn

        from disco_rl.trainer.pacing import quicken

        trainer_cls = get_trainer_cls(config.trainer.v1.trainer_mode)
        succeeded = False
        try:
            trainer = self.trainer = trainer_cls(config=config)
            quicken(trainer)
            trainer.init()
            over = trainer.global_steps >= trainer.total_training_steps
            if over and not config.trainer.val_only:
                print(f"finished: all {trainer.total_training_steps} steps are trained")
                succeeded = True
                return
            fqn = config.actor_rollout_ref.rollout.agent.get("agent_loop_manager_class")
            manager_cls = load_class_from_fqn(fqn) if fqn else AgentLoopManagerTQ
            manager = manager_cls.create(
                config=config,
                llm_client=trainer.get_llm_client(),
                teacher_client=trainer.get_teacher_client(),
                reward_loop_worker_handles=trainer.get_reward_handles(),
            )
            trainer.fit(manager)
            succeeded = True
        finally:
            try:
                tracking = getattr(self.trainer, "logger", None)
                if tracking is not None:
                    tracking.finish(exit_code=0 if succeeded else 1)
            finally:
                tq.close()


class _Call:
    def __init__(self, function: Any) -> None:
        self._function = function

    def remote(self, *args: Any) -> ray.ObjectRef:
        return ray.put(self._function(*args))
