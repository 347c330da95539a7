"""Every experiment composes, passes verl's validation and fills verl's dataclasses.

One process, no Ray and no GPU; that anything of it ran at scale is not what this shows.
"""

from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf, open_dict

from disco_rl.config import compose, configs_dir, flat_keys
from disco_rl.trainer.settings import TrainerSettings

EXPERIMENTS = sorted(path.stem for path in (configs_dir() / "experiment").glob("*.yaml"))
STRATEGIES = ("fsdp2", "megatron")
MODES = {
    "sync": "disco",
    "colocate_async": "disco_colocate_async",
    "separate_async": "disco_separate_async",
}
DRIVERS = ("qwen3_8b", "qwen3_14b", "ministral3_8b")


@cache
def composed(*overrides: str) -> DictConfig:
    return compose(overrides)


def experiment(name: str, *overrides: str) -> DictConfig:
    endpoints = ["worker.url=http://workers:8101/v1", "judge.url=http://judge:8100/v1"]
    return deepcopy(composed(f"experiment={name}", *endpoints, *overrides))


def check_with_verl(config: DictConfig) -> list[Any]:
    """What verl makes of the config; raises what its validation and its dataclasses raise."""
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    assert not need_reference_policy(config) and not need_critic(config)
    validate_config(config, need_reference_policy(config), need_critic(config))
    role = config.actor_rollout_ref
    return [omega_conf_to_dataclass(part) for part in (role.actor, role.rollout, config.algorithm)]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_is_one_that_verl_accepts(name: str, strategy: str) -> None:
    config = experiment(name, f"strategy={strategy}")
    OmegaConf.to_container(config, resolve=True, throw_on_missing=False)
    TrainerSettings.from_config(config)
    actor, rollout, *_ = check_with_verl(config)
    assert actor.strategy == strategy and rollout.name == "sglang"


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_driver_family_is_one_that_verl_accepts(driver: str) -> None:
    check_with_verl(experiment("qwen3_8b", f"driver={driver}"))


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("mode", MODES)
def test_a_mode_is_one_of_ours_that_verl_accepts(mode: str, strategy: str) -> None:
    from verl.trainer.config import HybridRolloutSwitchConfig
    from verl.trainer.ppo.v1 import get_trainer_cls
    from verl.utils.config import omega_conf_to_dataclass

    import disco_rl.trainer.asynchronous  # noqa: F401  (registers)

    config = experiment("qwen3_8b", f"mode={mode}", f"strategy={strategy}")
    _, rollout, algorithm = check_with_verl(config)
    v1, role = config.trainer.v1, config.actor_rollout_ref
    trainer = get_trainer_cls(v1.trainer_mode)
    assert v1.trainer_mode == MODES[mode]
    assert issubclass(trainer, get_trainer_cls(mode)) and trainer.verl_mode == mode
    switch = omega_conf_to_dataclass(v1.separate_async.hybrid_rollout)
    assert isinstance(switch, HybridRolloutSwitchConfig) and not switch.enable_switch
    if mode == "sync":
        assert algorithm.rollout_correction["rollout_is"] is None and rollout.nnodes == 0
    else:
        assert algorithm.rollout_correction["rollout_is"] == "token"
    if mode == "separate_async":  # what its constructor asserts
        a_step = v1.separate_async.parameter_sync_step * role.actor.ppo_mini_batch_size
        assert config.data.train_batch_size == a_step
        assert rollout.nnodes > 0 and rollout.n_gpus_per_node == 8
        assert rollout.checkpoint_engine.backend == "nccl" and not role.hybrid_engine


def test_more_updates_between_weights_are_refused() -> None:
    from disco_rl.trainer.asynchronous import DiscoSeparateAsync

    config = experiment(
        "qwen3_8b", "mode=separate_async", "trainer.v1.separate_async.parameter_sync_step=4"
    )
    with pytest.raises(ValueError, match="parameter_sync_step=4: .* set it to 1"):
        DiscoSeparateAsync(config)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_one_override_makes_it_a_rehearsal_on_a_cpu(name: str, mode: str) -> None:
    gpu, cpu = (experiment(name, f"mode={mode}", *more) for more in ([], ["rehearsal=cpu"]))
    actor, rollout, *_ = check_with_verl(cpu)
    assert actor.engine.ulysses_sequence_parallel_size == 1 and rollout.name == "disco_cpu"
    assert cpu.trainer.device == "cpu" and cpu.trainer.nnodes == 1
    # The same trainer, loop, reward, Worker pool, judge, loggers and checkpoints.
    for key in (
        "trainer.v1.trainer_mode",
        "trainer.logger",
        "trainer.val_before_train",
        "trainer.max_actor_ckpt_to_keep",
        "actor_rollout_ref.rollout.agent.agent_loop_config_path",
        "actor_rollout_ref.rollout.val_kwargs",
        "actor_rollout_ref.actor.checkpoint",
        "actor_rollout_ref.actor.optim.lr",
        "actor_rollout_ref.actor.loss_agg_mode",
        "algorithm",
        "disco.reward",
        "disco.watch",
        "worker.kind",
        "worker.model",
        "worker.url",
        "judge",
    ):
        assert OmegaConf.select(cpu, key) == OmegaConf.select(gpu, key), key


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_papers_settings(name: str) -> None:
    """Section 4, training details."""
    config = experiment(name)
    role, optim = config.actor_rollout_ref, config.actor_rollout_ref.actor.optim
    assert (optim.optimizer, optim.lr, optim.lr_warmup_steps) == ("AdamW", 1e-6, 5)
    assert (config.data.train_batch_size, role.rollout.n) == (256, 8)
    assert config.trainer.total_epochs == 2
    assert (config.driver.window, config.driver.max_call_tokens) == (24_576, 16_384)
    assert (role.rollout.max_model_len, config.driver.max_stages) == (24_576, 10)
    assert config.data.apply_chat_template_kwargs.enable_thinking is True
    assert config.worker.model == "Qwen/Qwen3-4B-Instruct-2507"
    assert config.judge.model == "Qwen/Qwen3-235B-A22B-Instruct-2507"
    assert role.model.path == ("Qwen/Qwen3-8B" if name == "qwen3_8b" else "Qwen/Qwen3-14B")
    weights = [config.disco.reward[part] for part in ("accuracy", "format", "evidence")]
    assert weights == {"no_fmt": [1, 0, 0.5], "no_evd": [1, 0.5, 0]}.get(name, [1, 0.5, 0.5])


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_row_fits_a_micro_batch(strategy: str) -> None:
    """verl's balancing of micro-batches asserts as much, at the first step."""
    config = experiment("qwen3_8b", f"strategy={strategy}")
    actor = config.actor_rollout_ref.actor
    sharing = actor.ulysses_sequence_parallel_size if strategy == "fsdp2" else 1
    assert actor.ppo_max_token_len_per_gpu * sharing >= config.driver.window


def test_the_first_update_is_not_lost_with_fsdp2() -> None:
    """verl's own schedule, built as its engine builds it."""
    import torch
    from verl.workers.engine.fsdp.transformer_impl import FSDPEngine

    settings = check_with_verl(experiment("qwen3_8b"))[0].optim
    settings.total_training_steps = 34
    engine = object.__new__(FSDPEngine)
    engine.optimizer_config, engine.rank = settings, 1
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=settings.lr)
    schedule = engine._build_lr_scheduler(optimizer)
    rates = []
    for _ in range(34):
        rates.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    assert rates[:5] == pytest.approx([2e-7, 4e-7, 6e-7, 8e-7, 1e-6])
    assert rates[5:] == pytest.approx([1e-6] * 29)


def test_the_first_update_is_not_lost_with_megatron() -> None:
    """By the rule of Megatron's OptimizerParamScheduler: init + (max - init) * n / warm-up."""
    optim = experiment("qwen3_8b", "strategy=megatron").actor_rollout_ref.actor.optim
    start, top, warm_up = optim.lr_warmup_init, optim.lr, optim.lr_warmup_steps
    rates = [start + (top - start) * min(n / warm_up, 1) for n in range(6)]
    assert rates == pytest.approx([2e-7, 4e-7, 6e-7, 8e-7, 1e-6, 1e-6])
    assert optim.lr_decay_style == "constant"


def test_the_model_dataclass_takes_what_we_set(tmp_path: Path) -> None:
    """verl's HFModelConfig reads the model's folder, so a small one of the same kind stands in."""
    from verl.utils.config import omega_conf_to_dataclass

    from tests.trainer.tiny import write_model

    model = experiment("qwen3_8b").actor_rollout_ref.model
    with open_dict(model):
        model.path = str(write_model(tmp_path))
    built = omega_conf_to_dataclass(model)
    assert built.hf_config.model_type == "qwen3" and built.enable_gradient_checkpointing


@pytest.mark.parametrize("rehearsal", [[], ["rehearsal=cpu"]])
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_loses_none_of_verls_keys(name: str, rehearsal: list[str]) -> None:
    """A group of ours that has the name of one of verl's could take its place."""
    choices = ("worker.", "judge.")
    before = {key for key in flat_keys(composed("device=gpu")) if not key.startswith(choices)}
    assert before <= set(flat_keys(experiment(name, *rehearsal)))
