"""From a composed config to a finished training run.

Importing this module is cheap: verl, Ray and torch are imported by `train`.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

CPU_PLUGIN = "disco_rl.trainer.cpu.plugin"
CPU_BALANCER = Path(__file__).parent / "cpu" / "balancer.yaml"


def train(config: DictConfig) -> None:
    """Train with verl's v1 trainer until the config's last step; blocks.

    A run whose last step is checkpointed says so and trains nothing.
    Sets the environment the device needs, starts a local Ray or joins the one of
    `ray_kwargs.ray_init.address` (unless this process has one), and shuts down what it started,
    also on failure or Ctrl-C. Raises what the trainer raises.
    """
    done, total = checkpointed_step(config), config.trainer.total_training_steps
    if total is not None and done >= total and not config.trainer.val_only:
        print(f"finished: step {done} of {total} is in {config.trainer.default_local_dir}")
        return
    os.environ.update(environment(config))
    # verl warns of every engine that isn't installed, in every process.
    warnings.filterwarnings("ignore", category=UserWarning, module=r"verl\.|torchdata\.")

    import ray
    from verl.trainer.main_ppo import run_ppo
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    from disco_rl.trainer.task_runner import TaskRunner

    started_here = not ray.is_initialized()
    servers: list[Any] = []
    try:
        validate_config(config, need_reference_policy(config), need_critic(config))
        if config.trainer.device == "cpu" and started_here:
            rollout = config.actor_rollout_ref.rollout
            rollout.router_config_path = rollout.router_config_path or str(CPU_BALANCER)
            servers = _start_ray(config)
        run_ppo(config, task_runner_class=TaskRunner)
    finally:
        servers.clear()
        if started_here:
            ray.shutdown()


def _start_ray(config: DictConfig) -> list[Any]:
    """Ray for the CPU; returns the rollout servers that are starting.

    On this machine only, its processes inherit this environment: verl would pass the variables as a
    runtime environment, which Ray applies process by process and which keeps it from reusing idle
    ones. The nodes of a Ray that is joined have their own environment, so there it has to.
    """
    from verl.trainer.constants_ppo import get_ppo_ray_runtime_env

    from disco_rl.trainer.cpu.startup import logical_gpus, start_servers

    theirs = get_ppo_ray_runtime_env(config)["env_vars"]
    plain: Any = OmegaConf.to_container(config.ray_kwargs.ray_init, resolve=True)
    options: dict[str, Any] = dict(plain)
    options.pop("runtime_env", None)
    if options.get("address"):
        kept = ("address", "namespace", "logging_level", "log_to_driver")
        options = {key: options[key] for key in kept if key in options}
        options["runtime_env"] = {"env_vars": {**theirs, **environment(config)}}
    else:
        for key, value in theirs.items():
            os.environ.setdefault(key, value)
        temporary = str(Path(tempfile.gettempdir()) / f"disco-ray-{os.getuid()}")
        options = {"_temp_dir": temporary, "num_gpus": logical_gpus(config), **options}
    start_ray(**options)
    return start_servers(config)


def start_ray(tries: int = 4, **options: Any) -> None:
    """`ray.init`, again where Ray's own node didn't come up in the 30 s that it gives it: on a
    machine that does something else too it may take longer."""
    import ray

    for left in reversed(range(tries)):
        try:
            ray.init(**options)
            return
        except Exception as error:
            if not left or "timed out during startup" not in str(error):
                raise
            ray.shutdown()


def checkpointed_step(config: DictConfig) -> int:
    """Last step that is checkpointed where this run would resume from; 0 when there is none.

    A tracker that a kill left empty, which verl can't read, is written again or removed.
    """
    if config.trainer.resume_mode != "auto":
        return 0
    folder = Path(config.trainer.default_local_dir)
    tracker = folder / "latest_checkpointed_iteration.txt"
    if not tracker.is_file():
        return 0
    if text := tracker.read_text().strip():
        return int(text)
    # verl writes it last, so the newest folder is whole.
    names = [path.name.removeprefix("global_step_") for path in folder.glob("global_step_*")]
    step = max((int(name) for name in names if name.isdigit()), default=0)
    if step:
        partial = tracker.with_suffix(".partial")
        partial.write_text(str(step))
        partial.replace(tracker)
    else:
        tracker.unlink()
    return step


def environment(config: DictConfig) -> dict[str, str]:
    """Variables this run needs, here and in every Ray process; never a secret.

    OMP_NUM_THREADS, warnings and log levels stay as the user has set them.
    """
    threads = str(os.environ.get("OMP_NUM_THREADS") or _cores())
    env = {"RAY_USAGE_STATS_ENABLED": "0", "TOKENIZERS_PARALLELISM": "false"}
    if config.trainer.device == "cpu":
        env |= {
            "VERL_PLATFORM": "cpu",
            "VERL_USE_EXTERNAL_MODULES": CPU_PLUGIN,
            # Ray hides accelerators from processes that asked for none; there are none to hide.
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
            # Rollout and trainer take turns on the same cores: a thread that spins while it
            # waits for work slows the other one down.
            "OMP_WAIT_POLICY": "passive",
            "OMP_NUM_THREADS": threads,
            "TQ_NUM_THREADS": "1",
            "TRANSFER_QUEUE_ENABLE": "1",
            "PYTHONPATH": _python_path(),
            # Ray would start an idle process a logical CPU, before it knows what they are for.
            "RAY_prestart_worker_first_driver": "0",
            "RAY_enable_metrics_collection": "0",
            # Ray's own default, 15, starves its processes on a machine that does anything else.
            "RAY_worker_niceness": "0",
            "RAY_DEDUP_LOGS": "0",
            "PYTHONWARNINGS": os.environ.get("PYTHONWARNINGS", "ignore"),
            "VERL_LOGGING_LEVEL": os.environ.get("VERL_LOGGING_LEVEL", "WARN"),
            "TQ_LOGGING_LEVEL": os.environ.get("TQ_LOGGING_LEVEL", "ERROR"),
        }
    # On GPUs transformers may still have to fetch an attention kernel from the hub.
    local = config.trainer.device == "cpu" and Path(config.actor_rollout_ref.model.path).is_dir()
    if os.environ.get("HF_HUB_OFFLINE") or local:
        env["HF_HUB_OFFLINE"] = "1"
    return env


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _python_path() -> str:
    """Ray's processes import disco_rl from here even when it isn't installed."""
    root = str(Path(__file__).resolve().parents[2])
    inherited = os.environ.get("PYTHONPATH", "")
    return os.pathsep.join([root, *([inherited] if inherited else [])])
