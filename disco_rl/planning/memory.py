"""Bytes a GPU needs, by role and phase; what doesn't fit, and the knob to turn.

What is counted, a parameter: fp32 weights, gradients and two Adam moments (16 bytes) over all GPUs
with FSDP2, the gradients only in the update; bf16 weights and fp32 gradients (6), whose buffers
stay, on each replica's GPUs and fp32 weights and moments (12) over all with Megatron. A token of a
micro-batch: its layers' inputs (gradient checkpointing keeps nothing else), one layer's
recomputation, and its logits in bf16, in fp32 and their gradient.
"""

import math
from dataclasses import dataclass, replace

from disco_rl.planning.inputs import Inputs, Training
from disco_rl.planning.model import Architecture


@dataclass(frozen=True, slots=True)
class DriverMemory:
    """Bytes a GPU: what stays through both phases, the update's own, and the rollout's own."""

    weights: float
    gradients: float
    optimizer: float
    activations: float
    logits: float
    gathered: float  # weights of others, while they are used
    rollout: float
    kv: float  # of the rollout's, for the cache

    training: Training

    @property
    def update(self) -> float:
        stays = self.training.rollout_stays and not self.training.alone
        kept = self.rollout if stays else 0.0
        own = self.gradients + self.activations + self.logits + self.gathered
        return self.weights + self.optimizer + own + kept

    @property
    def sampling(self) -> float:
        if self.training.alone:
            return self.rollout
        buffers = self.gradients if self.training.strategy == "megatron" else 0.0
        weights = 0.0 if self.training.param_offload else self.weights + buffers
        optimizer = 0.0 if self.training.optimizer_offload else self.optimizer
        return weights + optimizer + self.rollout


def driver_memory(model: Architecture, training: Training, gpu_bytes: float) -> DriverMemory:
    """Of one GPU that trains and samples `model`."""
    count, tokens = model.parameters, training.tokens
    embeddings = model.vocab * model.hidden
    layer = (count - (1 if model.tied else 2) * embeddings) / model.layers
    if training.strategy == "megatron":
        held, gradients = 2 * count / training.split, 4 * count / training.split
        optimizer = 12 * count / training.gpus
        gathered = 0.0
    else:
        held = gradients = 4 * count / training.gpus
        optimizer = 8 * count / training.gpus
        gathered = 2 * (2 * embeddings + 2 * layer)  # bf16: embeddings, this layer and the next
    if training.reference:
        held += 2 * count / training.gpus
    kept = model.layers * model.hidden
    recomputed = 8 * model.hidden + 4 * model.intermediate * max(model.active_experts, 1)
    rollout = training.rollout_share * gpu_bytes
    return DriverMemory(
        weights=held,
        gradients=gradients,
        optimizer=optimizer,
        activations=2 * tokens * (kept + recomputed) / training.split,
        logits=10 * tokens * model.vocab / training.split,
        gathered=gathered,
        rollout=rollout,
        kv=rollout - 2 * count / training.rollout_split,
        training=training,
    )


def served_kv(model: Architecture, gpus: int, gpu_bytes: float) -> float:
    """Bytes that all servers of `model`, in bf16 on `gpus` GPUs, have for their caches; negative
    where not even the weights fit."""
    return gpus * gpu_bytes - replicas(model, gpus, gpu_bytes) * 2.0 * model.parameters


def replicas(model: Architecture, gpus: int, gpu_bytes: float) -> int:
    """Servers on `gpus`: each on the least power of two whose memory weights fill to 85%."""
    size = 1
    while size < gpus and 2.0 * model.parameters > 0.85 * size * gpu_bytes:
        size *= 2
    return max(gpus // size, 1)


def refusals(given: Inputs) -> list[str]:
    """What doesn't fit, each with the knob to turn; empty where all does."""
    training, hardware = given.training, given.plan["hardware"]
    gpu = hardware["gpu_memory_gb"] * 1e9
    most = hardware["usable"] * gpu
    found = [*_layout(training)]
    if found:
        return found
    memory = driver_memory(given.driver, training, gpu)
    if memory.update > most:
        knob = _nodes(given, gpu, most) or "a smaller actor_rollout_ref.model.path"
        if memory.update - memory.activations - memory.logits <= most:
            wider = "ulysses_sequence_parallel_size"
            if training.strategy == "megatron":
                wider = "megatron.tensor_model_parallel_size"
            knob = f"actor.ppo_max_token_len_per_gpu lower and actor.{wider} higher, or {knob}"
        found.append(f"the update needs {_gb(memory.update)} a GPU of {_gb(most)}: set {knob}")
    window = training.window * given.driver.kv_bytes / training.rollout_split
    if memory.sampling > most:
        knobs = ["optimizer_offload=true in the strategy"] * (not training.optimizer_offload)
        room = most - (memory.sampling - memory.rollout)
        if room - (memory.rollout - memory.kv) > window:
            knobs.insert(0, f"rollout.gpu_memory_utilization={math.floor(100 * room / gpu) / 100}")
        knobs += [_nodes(given, gpu, most)]
        found.append(
            f"rollout beside what training keeps needs {_gb(memory.sampling)} a GPU of "
            f"{_gb(most)}: set {', or '.join(filter(None, knobs))}"
        )
    if memory.kv < window:
        found.append(
            f"the rollout's {_gb(memory.rollout)} a GPU leave {_gb(memory.kv)} for a cache, and a "
            f"window of {training.window} tokens takes {_gb(window)}: raise "
            "rollout.gpu_memory_utilization or rollout.tensor_model_parallel_size"
        )
    for role, model in (("worker", given.worker), ("judge", given.judge)):
        gpus = given.plan[role]["gpus"]
        if model is not None and served_kv(model, gpus, most) <= 0:
            least = -(-2 * model.parameters // int(0.85 * most))
            found.append(
                f"{given.names[role]} has {_gb(2 * model.parameters)} of weights and {gpus} GPUs "
                f"hold {_gb(gpus * most)}: set plan.{role}.gpus={least}, or a smaller {role}.model"
            )
    return found


def _gb(count: float) -> str:
    return f"{count / 1e9:.1f} GB"


def _layout(training: Training) -> list[str]:
    """GPUs that can't be divided as the config divides them."""
    together = training.split * training.sharing
    found = []
    if training.gpus % together:
        found.append(
            f"{training.gpus} GPUs can't be divided into groups of {together}: change "
            "trainer.nnodes or the strategy's parallel sizes"
        )
    if training.tokens * training.sharing < training.window:
        found.append(
            f"a micro-batch of {training.tokens} tokens x {training.sharing} GPUs is shorter than "
            f"driver.window={training.window}: raise actor.ppo_max_token_len_per_gpu to "
            f"{-(-training.window // training.sharing)}"
        )
    if training.gpus_a_node % training.rollout_split:
        found.append(
            f"rollout.tensor_model_parallel_size={training.rollout_split} doesn't divide a node's "
            f"{training.gpus_a_node} GPUs"
        )
    return found


def _nodes(given: Inputs, gpu: float, most: float) -> str:
    """`trainer.nnodes=` of the least number of nodes on which both phases fit, or nothing."""
    training = given.training
    for nodes in range(2, 17):
        larger = replace(training, gpus=nodes * training.gpus_a_node)
        memory = driver_memory(given.driver, larger, gpu)
        if larger.gpus > training.gpus and max(memory.update, memory.sampling) <= most:
            return f"trainer.nnodes={nodes}"
    return ""
