"""Every internal of verl 0.9.1 that we lean on is there, with the shape we rely on.

When this fails after an upgrade, the assertion's message names our file that must follow.
"""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

PROBE = """
import importlib, inspect, json, sys
out = {}
for path in json.loads(sys.argv[1]):
    module, _, names = path.partition(":")
    value = importlib.import_module(module)
    try:
        for name in names.split("."):
            meta = getattr(value, "__ray_metadata__", None)
            value = getattr(meta.modified_class if meta else value, name)
    except AttributeError as error:
        out[path] = f"missing: {error}"
        continue
    try:
        out[path] = list(inspect.signature(value).parameters)
    except (TypeError, ValueError):
        out[path] = type(value).__name__
print(json.dumps(out))
"""

# symbol: (parameters that must be there, or the type's name; who uses it)
SYMBOLS: dict[str, tuple[list[str] | str, str]] = {
    "verl.trainer.main_ppo:run_ppo": (["config", "task_runner_class"], "trainer/launch.py"),
    "verl.trainer.main_ppo:TaskRunnerV1.run": (["config"], "trainer/task_runner.py"),
    "verl.trainer.constants_ppo:get_ppo_ray_runtime_env": (["config"], "trainer/launch.py"),
    "verl.utils.config:validate_config": (
        ["config", "use_reference_policy", "use_critic"],
        "trainer/launch.py",
    ),
    "verl.trainer.ppo.v1:get_trainer_cls": ([], "trainer/task_runner.py"),
    "verl.trainer.ppo.v1:AgentLoopManagerTQ.create": ([], "trainer/task_runner.py"),
    "verl.trainer.ppo.v1.replay_buffer:ReplayBuffer": (["poll_interval"], "trainer/pacing.py"),
    "verl.trainer.ppo.v1.trainer_base:register_trainer": ([], "trainer/trainer.py"),
    "verl.trainer.ppo.v1.trainer_base:PPOTrainer._compute_advantage": (
        ["batch", "metrics"],
        "trainer/trainer.py",
    ),
    "verl.trainer.ppo.v1.trainer_base:PPOTrainer._compute_metrics": (
        ["batch", "metrics", "timing_raw", "global_steps", "epoch"],
        "trainer/trainer.py",
    ),
    "verl.plugin.platform:PlatformRegistry.register": (["platform"], "trainer/cpu/plugin.py"),
    "verl.utils.distributed:initialize_global_process_group_ray": (
        ["timeout_second", "backend"],
        "trainer/cpu/plugin.py",
    ),
    "verl.workers.engine.base:EngineRegistry.register": (
        ["model_type", "backend", "device"],
        "trainer/cpu/external.py",
    ),
    "verl.workers.engine.base:EngineRegistry._engines": ("dict", "tests/test_cpu_isolation.py"),
    "verl.workers.rollout.base:_ROLLOUT_REGISTRY": ("dict", "trainer/cpu/external.py"),
    "verl.workers.rollout.base:BaseRollout.update_weights": (
        ["weights", "wire_format", "kwargs"],
        "trainer/cpu/weights.py",
    ),
    "verl.workers.rollout.replica:RolloutReplicaRegistry.register": (
        ["name", "loader"],
        "trainer/cpu/external.py",
    ),
    "verl.workers.rollout.replica:RolloutReplica": (
        ["replica_rank", "config", "model_config", "gpus_per_node"],
        "trainer/cpu/replica.py",
    ),
    "verl.workers.rollout.replica:TokenOutput": (
        ["token_ids", "log_probs", "stop_reason", "extra_fields"],
        "trainer/cpu/server.py",
    ),
    "verl.workers.rollout.llm_server:LLMServerClient.generate": (
        ["request_id", "prompt_ids", "sampling_params"],
        "trainer/cpu/server.py",
    ),
    "verl.workers.rollout.router:get_router_handle": (
        ["servers", "router_config_path"],
        "trainer/cpu/balancer.py",
    ),
    "verl.workers.rollout.router:GlobalRequestLoadBalancer.require_acquire_fields": (
        [],
        "trainer/cpu/balancer.py",
    ),
    "verl.workers.engine.fsdp.transformer_impl:FSDPEngineWithLMHead._build_fsdp_module": (
        ["module"],
        "trainer/cpu/engine.py",
    ),
    "verl.utils.fsdp_utils:apply_fsdp2": (
        ["model", "fsdp_kwargs", "config"],
        "trainer/cpu/engine.py",
    ),
    "verl.utils.fsdp_utils:fsdp2_load_full_state_dict": (
        ["model", "full_state", "device_mesh", "cpu_offload"],
        "trainer/cpu/engine.py",
    ),
    "verl.workers.config:HFModelConfig": (["external_lib", "path"], "configs/device/cpu.yaml"),
    "verl.trainer.ppo.v1.replay_buffer:ReplayBufferAsync.sample": (
        ["global_steps", "partition_id", "batch_size"],
        "trainer/replay.py",
    ),
    "verl.trainer.ppo.v1:PPOTrainerColocateAsync.on_sample_end": ([], "trainer/asynchronous.py"),
    "verl.trainer.ppo.v1:PPOTrainerSeparateAsync._setup": ([], "trainer/asynchronous.py"),
    "verl.trainer.ppo.v1.trainer_base:PPOTrainer._reissue_inflight_prompts": (
        ["partition_id"],
        "trainer/asynchronous.py",
    ),
    "verl.trainer.ppo.v1.trainer_separate_async:logger": ("Logger", "trainer/asynchronous.py"),
    "verl.checkpoint_engine.base:CheckpointEngineRegistry.register": (
        ["backend"],
        "trainer/cpu/transfer.py",
    ),
    "verl.checkpoint_engine.base:CheckpointEngine.build_topology": (
        ["actor_wg_world_size", "rollout_world_size", "metadata"],
        "trainer/cpu/transfer.py",
    ),
    "verl.checkpoint_engine.base:CheckpointEngineWorker": (
        ["rollout_config", "model_config", "server_adapter", "kwargs"],
        "trainer/cpu/weights.py",
    ),
    "verl.experimental.agent_loop.agent_loop:AgentLoopBase.run": (
        ["sampling_params", "kwargs"],
        "trainer/agent_loop.py",
    ),
    "verl.experimental.agent_loop.agent_loop:AgentLoopOutput": (
        ["prompt_ids", "response_ids", "response_mask", "response_logprobs", "reward_score"],
        "trainer/agent_loop.py",
    ),
}


@pytest.fixture(scope="module")
def found() -> dict[str, object]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("VERL_")}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROBE, json.dumps(list(SYMBOLS))],
        env={**clean, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_the_version_is_the_one_read():
    assert version("verl") == "0.9.1"


@pytest.mark.parametrize("symbol", SYMBOLS)
def test_symbol(symbol, found):
    expected, user = SYMBOLS[symbol]
    seen = found[symbol]
    if isinstance(expected, str):
        assert seen == expected, f"disco_rl/{user} relies on {symbol}"
    else:
        assert isinstance(seen, list), f"disco_rl/{user} relies on {symbol}: {seen}"
        assert set(expected) <= set(seen), f"disco_rl/{user} relies on {symbol}{seen}"


def test_our_balancer_answers_all_that_the_client_asks():
    from disco_rl.trainer.cpu.balancer import StickyBalancer

    balancer = StickyBalancer({"a": 1, "b": 2}, {})
    assert balancer.require_acquire_fields() == balancer.require_release_fields() == []
    names = [balancer.acquire_server(request_id=str(i))[0] for i in range(4)]
    assert sorted(names) == ["a", "a", "b", "b"]
    assert balancer.acquire_server(request_id="0")[0] == names[0]
    balancer.release_server(server_id="a")
    assert inspect.signature(StickyBalancer).parameters.keys() == {"servers", "settings"}
