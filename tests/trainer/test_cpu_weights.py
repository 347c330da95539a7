"""The CPU engine's weights, the digest, and what the rollout holds after a sync."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from disco_rl.trainer.cpu.digest import load_weights, weights_digest
from tests.trainer.tiny import make_model, make_tokenizer, write_model

ROOT = Path(__file__).resolve().parents[2]

# One trainer rank in a process of its own: verl's platform is process-wide state.
ENGINE = """
import asyncio, json, os, sys
import torch
from safetensors.torch import load_file
from verl.workers.config import (
    FSDPActorConfig, FSDPEngineConfig, FSDPOptimizerConfig, HFModelConfig, RolloutConfig,
)
from verl.trainer.config import CheckpointConfig
from verl.utils.distributed import initialize_global_process_group_ray
from verl.workers.engine.base import EngineRegistry
from disco_rl.trainer.cpu.digest import load_weights, weights_digest
from disco_rl.trainer.cpu.generator import load_model
from disco_rl.trainer.cpu.weights import WeightReceiver

path, out = sys.argv[1:]
initialize_global_process_group_ray()
model_config = HFModelConfig(
    path=path, external_lib="disco_rl.trainer.cpu.external", use_remove_padding=False,
    enable_gradient_checkpointing=False, override_config={"attn_implementation": "sdpa"},
)
engine = EngineRegistry.new(
    "language_model", "fsdp2", model_config=model_config,
    engine_config=FSDPEngineConfig(
        strategy="fsdp2", model_dtype="fp32", use_torch_compile=False,
        mixed_precision={"param_dtype": "fp32", "reduce_dtype": "fp32", "buffer_dtype": "fp32"},
    ),
    optimizer_config=FSDPOptimizerConfig(lr=1e-3, total_training_steps=2),
    checkpoint_config=CheckpointConfig(save_contents=["model", "hf_model"]),
)
engine.initialize()
# A step away from the files, so that the sync has something to carry.
torch.manual_seed(0)
with torch.no_grad():
    for p in engine.module.parameters():
        p.add_(torch.randn(()) * 1e-2)
engine.save_checkpoint(out, global_step=1)

class Local:
    def __init__(self, model): self.model = model
    @property
    def load(self):
        outer = self
        class Call:
            async def remote(self, named, step): return load_weights(outer.model, named)
        return Call()

rollout, _ = load_model(path)
before = weights_digest(rollout.state_dict())
os.environ["RANK"] = "0"
receiver = WeightReceiver(
    RolloutConfig(name="disco_cpu"), model_config, device_mesh=None
)
receiver._server = Local(rollout)
weights, _ = engine.get_per_tensor_param()
asyncio.run(receiver.update_weights(weights, global_steps=1))
names = [n for n, _ in engine.get_per_tensor_param()[0]]
saved, _ = load_model(out + "/huggingface")
saved_tensors = load_file(out + "/huggingface/model.safetensors")
pick = lambda m: weights_digest({n: m.state_dict()[n] for n in names})
print(json.dumps({
    "engine": type(engine).__name__, "before": before, "sent": receiver.last_digest,
    "rollout": pick(rollout), "checkpoint": pick(saved),
    "dtypes": sorted({str(t.dtype) for t in saved_tensors.values()}),
}))
"""


def test_the_rollout_holds_the_bytes_of_the_trainer_and_of_its_checkpoint(tmp_path):
    model = write_model(tmp_path / "model")
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "VERL_PLATFORM": "cpu",
        "VERL_USE_EXTERNAL_MODULES": "disco_rl.trainer.cpu.plugin",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "0",
        "RANK": "0",
        "WORLD_SIZE": "1",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ENGINE, str(model), str(tmp_path / "out")],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["engine"] == "CpuEngineWithLMHead"
    assert seen["sent"] == seen["rollout"] == seen["checkpoint"]
    assert seen["sent"] != seen["before"]
    assert seen["dtypes"] == ["torch.float32"]


def test_the_digest_sees_one_changed_bit_and_a_renamed_weight():
    weights = make_model(make_tokenizer()).state_dict()
    name = "model.layers.0.self_attn.q_proj.weight"
    bent = {**weights, name: weights[name].clone()}
    bent[name].view(torch.int32)[0, 0] ^= 1
    assert weights_digest(bent) != weights_digest(weights)
    renamed = {("x" if k == name else k): v for k, v in weights.items()}
    assert weights_digest(renamed) != weights_digest(weights)
    assert weights_digest(dict(reversed(weights.items()))) == weights_digest(weights)


def test_weights_that_do_not_fit_are_refused_and_tied_ones_may_come_once():
    model = make_model(make_tokenizer())
    weights = copy.deepcopy(model).state_dict()
    del weights["lm_head.weight"]
    load_weights(model, weights)
    with pytest.raises(ValueError, match=r"unknown \['extra'\]"):
        load_weights(model, {**weights, "extra": torch.zeros(1)})
    with pytest.raises(ValueError, match=r"missing \['model.norm.weight'\]"):
        load_weights(model, {k: v for k, v in weights.items() if k != "model.norm.weight"})
    with pytest.raises(ValueError, match="has shape"):
        load_weights(model, {**weights, "model.norm.weight": torch.zeros(3)})
