"""What a plan is reckoned from: the parts of a composed train config that set a run's size."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from disco_rl.planning.model import Architecture, architecture

GB = 1e9


@dataclass(frozen=True, slots=True)
class Training:
    """How the Driver is trained and sampled on `gpus`, `gpus_a_node` of them a node.

    `split` GPUs hold one replica's weights together (tensor and pipeline parallel, Megatron),
    `sharing` more share its sequences (Ulysses or context parallel); `tokens` of a micro-batch are
    on one GPU. `offload` is what leaves the GPU during rollout. `alone` GPUs only sample, while
    the others only train (mode=separate_async); 0: the same GPUs do both in turn.
    """

    strategy: str
    gpus: int
    gpus_a_node: int
    split: int
    sharing: int
    tokens: int
    window: int
    param_offload: bool
    optimizer_offload: bool
    reference: bool
    rollout_split: int
    rollout_share: float  # of a GPU's memory, for the rollout's weights and cache
    rollout_stays: bool  # its memory isn't freed for the update
    alone: int = 0

    @property
    def sampling_gpus(self) -> int:
        return self.alone or self.gpus


@dataclass(frozen=True, slots=True)
class Inputs:
    """`plan` is config group `plan` as plain containers, documented in configs/plan."""

    driver: Architecture
    worker: Architecture | None
    judge: Architecture | None
    training: Training
    questions: int  # a step
    group: int
    epochs: int
    total_steps: int | None
    kept: int | None  # checkpoints at a time; None: all
    save_every: int  # steps; under 1: never
    deadline_s: float  # of a trajectory
    ahead: bool  # trajectories last over a step's training too (the asynchronous modes)
    judged: bool
    names: Mapping[str, str]
    plan: Mapping[str, Any]

    @property
    def gpus(self) -> dict[str, int]:
        """GPUs by role."""
        plan = self.plan
        training = self.training
        driver = {"Driver (update and rollout)": training.gpus}
        if training.alone:
            driver = {"Driver (update)": training.gpus, "Driver (rollout)": training.alone}
        return {
            **driver,
            "Workers": plan["worker"]["gpus"] if self.worker else 0,
            "judge": plan["judge"]["gpus"] if self.judge else 0,
        }


def inputs(config: Any) -> Inputs:
    """Of a composed train config. Raises `ValueError` naming the key that a plan can't use."""
    from omegaconf import OmegaConf

    if config.trainer.device == "cpu":
        raise ValueError(
            "trainer.device=cpu: a plan is reckoned for GPUs; choose device=gpu, or see "
            "`disco-rl train --check` for the step's size"
        )
    plan: Any = OmegaConf.to_container(config.plan, resolve=True)
    role, trainer = config.actor_rollout_ref, config.trainer
    names = {"driver": str(role.model.path)}
    if config.worker.kind == "chat":
        names["worker"] = _model(config, "worker")
    if config.judge.name != "match" and plan["judge"]["gpus"]:
        names["judge"] = _model(config, "judge")
    sizes = {part: architecture(name, plan["models"]) for part, name in names.items()}
    return Inputs(
        driver=sizes["driver"],
        worker=sizes.get("worker"),
        judge=sizes.get("judge"),
        training=_training(config),
        questions=int(config.data.train_batch_size),
        group=int(role.rollout.n),
        epochs=int(trainer.total_epochs),
        total_steps=trainer.get("total_training_steps"),
        kept=trainer.get("max_actor_ckpt_to_keep"),
        save_every=int(trainer.save_freq),
        deadline_s=float(config.episode.deadline_s),
        ahead=str(trainer.v1.trainer_mode).endswith("_async"),
        judged=config.judge.name != "match",
        names=names,
        plan=plan,
    )


def _model(config: Any, role: str) -> str:
    from omegaconf import OmegaConf

    part = config[role]
    if OmegaConf.is_missing(part, "model"):
        raise ValueError(f"{role}.model isn't set; a plan needs its size: set {role}.model=NAME")
    return str(part.model)


def _training(config: Any) -> Training:
    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    if actor.strategy == "megatron":
        engine = actor.megatron
        split = engine.tensor_model_parallel_size * engine.pipeline_model_parallel_size
        sharing = engine.context_parallel_size
    else:
        engine, split = actor.fsdp_config, 1
        sharing = actor.ulysses_sequence_parallel_size
    return Training(
        strategy=str(actor.strategy),
        gpus=int(config.trainer.nnodes * config.trainer.n_gpus_per_node),
        gpus_a_node=int(config.trainer.n_gpus_per_node),
        split=int(split),
        sharing=int(sharing),
        tokens=int(actor.ppo_max_token_len_per_gpu),
        window=int(config.driver.window),
        param_offload=bool(engine.param_offload),
        optimizer_offload=bool(engine.optimizer_offload),
        reference=bool(actor.use_kl_loss),
        rollout_split=int(rollout.tensor_model_parallel_size),
        rollout_share=float(rollout.gpu_memory_utilization),
        rollout_stays=not rollout.free_cache_engine,
        # Of a pool of its own; verl's default has no nodes.
        alone=int(rollout.nnodes * rollout.n_gpus_per_node) if rollout.nnodes else 0,
    )
