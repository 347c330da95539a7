"""The size of a step and of a run: sequences, tokens, Worker reads, seconds, disk, dollars."""

import math
from dataclasses import dataclass

from disco_rl.planning.inputs import GB, Inputs
from disco_rl.planning.memory import served_kv

# The models that plan.rates are stated for; other sizes scale with their active parameters.
_DRIVER_RATED, _WORKER_RATED = 8e9, 4e9


@dataclass(frozen=True, slots=True)
class Work:
    """What a step has to do, in calls and tokens."""

    trajectories: int
    sequences: float  # one a Driver call
    prompt_tokens: float
    output_tokens: float
    shards: int  # of a context
    worker_calls: float
    prefill_shared: float  # tokens that Workers read when each shard is read once
    prefill_alone: float  # and when every call reads its shard afresh
    worker_output: float
    judge_calls: float
    judge_prompt: float
    judge_output: float

    @property
    def tokens(self) -> float:
        """That are trained on, prompts included."""
        return self.prompt_tokens + self.output_tokens


def work(given: Inputs) -> Work:
    """Of one step, by the stated shape of a trajectory."""
    shape, worker, judge = (given.plan[key] for key in ("shape", "worker", "judge"))
    trajectories = given.questions * given.group
    sequences = trajectories * shape["stages"] * (2 + shape["wide"])  # plan, review, wide actions
    shards = math.ceil(shape["context_tokens"] / shape["shard_tokens"])
    calls = trajectories * shape["stages"] * shape["narrow"] * shards if given.worker else 0.0
    beside = calls * worker["overhead_tokens"]
    distinct = given.questions * shards * shape["shard_tokens"] if given.worker else 0.0
    judged = trajectories * judge["calls"] if given.judged else 0.0
    return Work(
        trajectories=trajectories,
        sequences=sequences,
        prompt_tokens=sequences * shape["prompt_tokens"],
        output_tokens=sequences * shape["output_tokens"],
        shards=shards,
        worker_calls=calls,
        prefill_shared=distinct * worker["sharing"] + beside,
        prefill_alone=calls * shape["shard_tokens"] + beside,
        worker_output=calls * worker["output_tokens"],
        judge_calls=judged,
        judge_prompt=judged * judge["prompt_tokens"],
        judge_output=judged * judge["output_tokens"],
    )


@dataclass(frozen=True, slots=True)
class Seconds:
    """Of one step. Workers scan for some trajectories while the Driver samples for others, so the
    rollout takes as long as the slower of the two; with GPUs of its own it runs beside the update
    of the step before."""

    sample: float
    workers: float
    score: float
    update: float
    overhead: float
    overlap: bool = False

    @property
    def rollout(self) -> float:
        return max(self.sample, self.workers)

    @property
    def step(self) -> float:
        training = self.score + self.update
        together = max(self.rollout, training) if self.overlap else self.rollout + training
        return together + self.overhead


def seconds(given: Inputs, step: Work, *, shared: bool = True) -> Seconds:
    """Of one step at the stated rates; `shared`: Workers read each shard once."""
    rates, shape = given.plan["rates"], given.plan["shape"]
    gpus = given.training.gpus
    flops = gpus * given.plan["hardware"]["peak_tflops"] * 1e12 * rates["mfu"]
    position = (shape["prompt_tokens"] + shape["output_tokens"]) / 2
    workers = 0.0
    if given.worker:
        faster = given.plan["worker"]["gpus"] * _WORKER_RATED / given.worker.active
        read = step.prefill_shared if shared else step.prefill_alone
        workers = read / (rates["prefill"] * faster)
        workers += step.worker_output / (rates["decode"] * faster)
    # A second.
    sampled = given.training.sampling_gpus * rates["generate"] * _DRIVER_RATED / given.driver.active
    return Seconds(
        sample=step.output_tokens / sampled,
        workers=workers,
        score=step.tokens * given.driver.flops(1, position) / flops,
        update=step.tokens * given.driver.flops(3, position) / flops,
        overhead=rates["overhead_s"],
        overlap=given.training.alone > 0,
    )


def trajectory_seconds(given: Inputs) -> float:
    """How long a trajectory lasts at most: those of a step share the GPUs and run at once, so each
    takes about as long as all; a batch ahead, it waits for a step's training in between."""
    took = seconds(given, work(given))
    return took.rollout + (took.step if given.ahead else 0.0)


def steps(given: Inputs) -> int:
    """Of the run: whole batches of an epoch, times epochs, unless total_training_steps says."""
    if given.total_steps is not None:
        return int(given.total_steps)
    return given.plan["shape"]["questions"] // given.questions * given.epochs


def contexts_cached(given: Inputs) -> float:
    """Contexts whose shards the Workers' caches hold at once."""
    assert given.worker is not None
    return worker_tokens(given) / given.plan["shape"]["context_tokens"]


def worker_tokens(given: Inputs) -> float:
    """KV budget of all Workers, in tokens."""
    assert given.worker is not None
    hardware = given.plan["hardware"]
    most = hardware["usable"] * hardware["gpu_memory_gb"] * GB
    kv = served_kv(given.worker, given.plan["worker"]["gpus"], most)
    return max(kv, 0.0) / given.worker.kv_bytes


def disk_bytes(given: Inputs) -> dict[str, float]:
    """Under the run's folder: checkpoints (fp32 weights, two moments, and the weights again as
    safetensors), those kept, one being written and the best; records at 4 bytes a token."""
    tokens = work(given).tokens
    saved = -(-steps(given) // given.save_every) if given.save_every > 0 else 0
    kept = saved if given.kept is None else min(given.kept, saved)
    return {
        "a checkpoint": 16.0 * given.driver.parameters,
        "checkpoints": 16.0 * given.driver.parameters * (kept + 2 if saved else 0),
        "records": 4.0 * tokens * steps(given),
    }


def dollars(given: Inputs, step: Work, hours: float) -> dict[str, float]:
    """Of the run: GPUs of all roles for so many hours, and a judge that is paid by the token."""
    judge, count = given.plan["judge"], steps(given)
    cost = {"GPUs": sum(given.gpus.values()) * hours * given.plan["hardware"]["dollars_gpu_hour"]}
    if given.judged and not judge["gpus"]:
        prompt = step.judge_prompt * judge["dollars_million_prompt"]
        output = step.judge_output * judge["dollars_million_output"]
        cost["judge"] = count * (prompt + output) / 1e6
    return cost
