"""A plan as lines to read, and what it refuses."""

import math
from collections.abc import Iterator

from disco_rl.planning import memory
from disco_rl.planning.inputs import GB, Inputs
from disco_rl.planning.step import (
    contexts_cached,
    disk_bytes,
    dollars,
    seconds,
    steps,
    trajectory_seconds,
    work,
    worker_tokens,
)


def refused(given: Inputs) -> list[str]:
    """What doesn't fit, GPUs, disk and time, each with the knob to turn."""
    found = memory.refusals(given)
    if (lasts := trajectory_seconds(given)) > given.deadline_s:
        found.append(
            f"a trajectory lasts up to {lasts:,.0f} s, as long as a step's rollout, and "
            f"episode.deadline_s={given.deadline_s:,.0f} would end it: set "
            f"episode.deadline_s={2000 * math.ceil(lasts / 1000)}, or more GPUs"
        )
    needed, free = disk_bytes(given), given.plan["disk"]["free_gb"] * GB
    total = needed["checkpoints"] + needed["records"]
    if total > free:
        found.append(
            f"the run's folder needs {total / GB:,.0f} GB of {free / GB:,.0f} (plan.disk.free_gb): "
            "lower trainer.max_actor_ckpt_to_keep, or leave optimizer out of "
            "actor.checkpoint.save_contents (no resumption then), or set disco.records_dir=null"
        )
    return found


def lines(given: Inputs) -> Iterator[str]:
    """The whole plan, a line each."""
    yield from _machines(given)
    yield from _step(given)
    yield from _run(given)


def _machines(given: Inputs) -> Iterator[str]:
    training, hardware = given.training, given.plan["hardware"]
    gpu = hardware["gpu_memory_gb"] * GB
    for role, count in given.gpus.items():
        if count:
            yield f"GPUs, {role}: {count}"
    yield (
        f"Driver: {given.names['driver']}, {given.driver.parameters / 1e9:.2f}B parameters, "
        f"{training.strategy} on {training.gpus} GPUs, a replica over {training.split}, a sequence "
        f"over {training.split * training.sharing}"
    )
    need = memory.driver_memory(given.driver, training, gpu)
    yield (
        f"update: {need.update / GB:.1f} GB a GPU of {hardware['usable'] * gpu / GB:.1f} "
        f"(weights {need.weights / GB:.1f}, gradients {need.gradients / GB:.1f}, "
        f"Adam {need.optimizer / GB:.1f}, "
        f"activations {need.activations / GB:.1f}, logits {need.logits / GB:.1f}, "
        f"gathered {need.gathered / GB:.1f})"
    )
    windows = max(need.kv, 0.0) * training.rollout_split / (training.window * given.driver.kv_bytes)
    yield (
        f"rollout: {need.sampling / GB:.1f} GB a GPU, {need.kv / GB:.1f} of it cache: "
        f"{windows:.0f} full windows of {training.window:,} tokens a replica"
    )
    if given.worker:
        yield (
            f"Workers: {given.names['worker']}, KV budget {worker_tokens(given) / 1e6:.2f}M tokens "
            f"({given.worker.kv_bytes:,} bytes each): {contexts_cached(given):.0f} contexts of "
            f"{given.plan['shape']['context_tokens']:,.0f} tokens at once"
        )


def _step(given: Inputs) -> Iterator[str]:
    step = work(given)
    yield (
        f"step: {given.questions} questions x {given.group} = {step.trajectories:,} trajectories, "
        f"{step.sequences:,.0f} sequences, {step.tokens / 1e6:,.1f}M tokens "
        f"({step.output_tokens / 1e6:,.1f}M sampled)"
    )
    if given.worker:
        yield (
            f"Workers: {step.worker_calls:,.0f} calls on {step.shards} shards a context; prefill "
            f"{step.prefill_shared / 1e6:,.0f}M tokens with sharing, "
            f"{step.prefill_alone / 1e6:,.0f}M without; {step.worker_output / 1e6:,.0f}M written"
        )
    if given.judged:
        yield (
            f"judge: {step.judge_calls:,.0f} calls, {step.judge_prompt / 1e6:,.1f}M tokens read, "
            f"{step.judge_output / 1e6:,.2f}M written"
        )


def _run(given: Inputs) -> Iterator[str]:
    step, count = work(given), steps(given)
    took, alone = seconds(given, step), seconds(given, step, shared=False)
    hours = took.step * count / 3600
    how = ", update beside rollout" if took.overlap else ""
    yield (
        f"estimate: {took.step:,.0f} s a step{how} (rollout {took.rollout:,.0f}: "
        f"Driver {took.sample:,.0f}, Workers {took.workers:,.0f}; scoring {took.score:,.0f}; "
        f"update {took.update:,.0f}; other {took.overhead:,.0f})"
    )
    if given.worker:
        yield f"  without sharing: {alone.step:,.0f} s (Workers {alone.workers:,.0f})"
    yield (
        f"run: {count} steps, {hours:,.1f} h, {hours * sum(given.gpus.values()):,.0f} GPU hours, "
        f"{step.judge_calls * count:,.0f} judge calls"
    )
    needed = disk_bytes(given)
    yield (
        f"disk: {(needed['checkpoints'] + needed['records']) / GB:,.0f} GB "
        f"({needed['a checkpoint'] / GB:,.0f} a checkpoint, records {needed['records'] / GB:,.0f})"
    )
    cost = dollars(given, step, hours)
    yield "dollars: " + ", ".join(f"{what} {value:,.0f}" for what, value in cost.items())
    yield "by the rates stated in configs/plan; replace them with what a first step measured"
