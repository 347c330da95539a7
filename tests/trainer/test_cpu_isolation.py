"""The CPU plugin acts only where a run asks for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from disco_rl.config import compose
from disco_rl.trainer.launch import environment

ROOT = Path(__file__).resolve().parents[2]
MODEL = ["actor_rollout_ref.model.path=some/model"]

STATE = """
import importlib, json, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
heavy = [m for m in ("verl", "ray", "torch") if m in sys.modules]
import verl.utils.distributed as d
from verl.plugin.platform import PlatformRegistry
from verl.workers.engine.base import EngineRegistry
from verl.workers.rollout.base import _ROLLOUT_REGISTRY
from verl.workers.rollout.replica import RolloutReplicaRegistry
import verl.workers.engine
print(json.dumps({
    "heavy": heavy,
    "cpu platform": PlatformRegistry.get("cpu") is not None,
    "group patched": d.initialize_global_process_group_ray.__module__ != d.__name__,
    "cpu engine": "cpu" in EngineRegistry._engines["language_model"]["fsdp2"],
    "rollout": ("disco_cpu", "async") in _ROLLOUT_REGISTRY,
    "replica": "disco_cpu" in RolloutReplicaRegistry._registry,
}))
"""


def state(env: dict[str, str], *modules: str) -> dict[str, object]:
    """What a fresh process has of us in verl after importing `modules`."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("VERL_")}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", STATE, *modules],
        env={**clean, "PYTHONPATH": str(ROOT), **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def verl_variables(overrides: list[str]) -> dict[str, str]:
    env = environment(compose([*MODEL, *overrides]))
    return {k: v for k, v in env.items() if k.startswith("VERL_")}


def test_a_gpu_run_registers_nothing():
    env = verl_variables(["device=gpu"])
    assert env == {}
    seen = state(env, "disco_rl.trainer", "disco_rl.trainer.cpu", "disco_rl.trainer.launch")
    assert seen == {
        "heavy": [],
        "cpu platform": False,
        "group patched": False,
        "cpu engine": False,
        "rollout": False,
        "replica": False,
    }


def test_a_cpu_run_registers_platform_and_engine():
    config = compose([*MODEL, "device=cpu"])
    external = config.actor_rollout_ref.model.external_lib
    seen = state(verl_variables(["device=cpu"]), "verl", external)
    assert all(value is True for key, value in seen.items() if key != "heavy"), seen


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_device_configs_compose_and_agree_on_the_method(device):
    config = compose([*MODEL, f"device={device}"])
    assert config.algorithm.adv_estimator == "grpo"
    assert config.actor_rollout_ref.actor.checkpoint.save_contents[-1] == "hf_model"
    if device == "cpu":
        assert config.actor_rollout_ref.rollout.name == "disco_cpu"
        for role in ("actor", "ref"):
            fsdp = config.actor_rollout_ref[role].fsdp_config
            assert fsdp.model_dtype == "fp32"
            assert set(fsdp.mixed_precision.values()) == {"fp32"}
