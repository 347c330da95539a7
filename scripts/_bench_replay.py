"""`bench_workers.py replay`: a step's Worker calls through the pool's own scheduling, on a virtual
clock and simulated servers."""

import asyncio
import gc
import json
import math
import random
import time
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from _simulated_server import Call, Machine, SimulatedServer, Used
from _virtual_time import run
from omegaconf import OmegaConf

from disco_rl.engine.serving.admission import Admission
from disco_rl.engine.serving.calls import Calls, Text
from disco_rl.engine.serving.holds import Holds
from disco_rl.engine.serving.policy import ServingPolicy
from disco_rl.engine.serving.router import Router
from disco_rl.engine.tasks import gather


@dataclass(frozen=True)
class Stage:
    """Seconds before and after the lookups, and their instructions."""

    plan_s: float
    answer_s: float
    instructions: tuple[str, ...]


@dataclass(frozen=True)
class Question:
    """Shard sizes in tokens, and the stages of each trajectory."""

    name: str
    shards: tuple[int, ...]
    trajectories: tuple[tuple[Stage, ...], ...]


@dataclass(frozen=True)
class Arm:
    """What of the pool is on. `overcommit` 0: every question enters at once; `hold`: the share of
    the caches that questions hold."""

    name: str
    shard_first: bool = True
    affinity: bool = True
    gate: bool = True
    memo: bool = True
    overcommit: float = 0.0
    hold: float = 0.0
    host: bool = False


def workload(config: Any) -> list[Question]:
    """The same for every arm."""
    rng = random.Random(config.seed)
    counts, weights = zip(*config.stages.items(), strict=True)

    def seconds(spread: Any) -> float:
        return spread.median * math.exp(rng.gauss(0.0, spread.sigma))

    def stage(index: int) -> Stage:
        # One of a few names that trajectories share, or one of its own.
        texts = (
            f"{index} common {rng.randrange(config.narrow)}"
            if rng.random() < config.same
            else f"{index} own {rng.random()}"
            for _ in range(config.narrow)
        )
        return Stage(seconds(config.plan_s), seconds(config.answer_s), tuple(texts))

    questions = []
    for number in range(config.questions):
        length = config.lengths[number % len(config.lengths)]
        trajectories = tuple(
            tuple(stage(i) for i in range(rng.choices(counts, weights)[0]))
            for _ in range(config.trajectories)
        )
        shards = (config.shard,) * (length // config.shard)
        questions.append(Question(f"q{number}", shards, trajectories))
    rng.shuffle(questions)
    return questions


async def step(config: Any, questions: list[Question], arm: Arm) -> dict[str, Any]:
    """One step under `arm`: seconds on the virtual clock and tokens of the servers."""
    distinct = sum(sum(question.shards) for question in questions)
    kv = int(distinct * config.kv_share / config.endpoints)
    machine = Machine(
        config.prefill,
        config.decode,
        config.batch,
        kv,
        int(kv * config.host_factor) if arm.host else 0,
        config.load,
        config.head_tokens,
    )
    servers = [SimulatedServer(f"s{i}", machine) for i in range(config.endpoints)]
    never = 1e9
    policy = ServingPolicy(
        config.slots,
        config.reads if arm.gate else config.slots,
        never,
        never,
        gate=arm.gate,
        affinity=arm.affinity and arm.shard_first,
    )
    held = kv + machine.host_tokens
    router: Router[Call, Used] = Router(servers, policy, held)
    calls = Calls(router, Text(lambda _: "", lambda _: Used(0, 0, 0)), arm.memo * 10**7)
    capacity = int(held * config.endpoints * arm.overcommit) or None
    admission = Admission(capacity)
    holds = Holds(int(held * config.endpoints * arm.hold), config.hold_s)

    outputs = config.output_tokens
    own_tokens, hold_s = config.own_tokens, config.hold_s  # a million looks at a config take time
    found, nothing, share_found = outputs.found, outputs.nothing, outputs.share_found * 2**32

    async def look_up(question: Question, shard: int, instruction: str) -> None:
        name = f"{question.name}/{shard}"
        key = f"{name} {instruction}"
        size, held_s = question.shards[shard], hold_s if question.name in holds else 0.0
        request = Call(
            name if arm.shard_first else None,
            size,
            own_tokens,
            found if crc32(key.encode()) < share_found else nothing,
            held_s,
        )
        await calls.ask(key, name, size, request, held_s)

    async def trajectory(question: Question, stages: tuple[Stage, ...]) -> None:
        tokens = sum(question.shards)
        async with admission.admit(question.name, tokens):
            with holds.member(question.name, tokens):
                for stage in stages:
                    await asyncio.sleep(stage.plan_s)
                    await gather(
                        [
                            look_up(question, shard, instruction)
                            for instruction in stage.instructions
                            for shard in range(len(question.shards))
                        ]
                    )
                    await asyncio.sleep(stage.answer_s)

    await gather([trajectory(q, stages) for q in questions for stages in q.trajectories])
    seconds = asyncio.get_running_loop().time()
    await calls.close()
    computed = sum(server.computed for server in servers)
    cached = sum(server.cached for server in servers)
    return {
        "step_s": round(seconds),
        "computed_tokens": computed,
        "reads": round(computed / distinct, 2),
        "cache_hit_rate": round(cached / (computed + cached), 3),
        "calls_served": sum(server.calls for server in servers),
        "prefill_busy": round(sum(s.prefill_s for s in servers) / len(servers) / seconds, 2),
    }


def bound(config: Any, questions: list[Question]) -> dict[str, Any]:
    """No step can be faster: the slowest trajectory's thinking, or reading every shard once.

    `stages` is how often a shard is read where the trajectories of a question meet at every stage
    and nothing is kept from one to the next.
    """
    thinking = max(
        sum(stage.plan_s + stage.answer_s for stage in stages)
        for question in questions
        for stages in question.trajectories
    )
    distinct = sum(sum(question.shards) for question in questions)
    reading = distinct / (config.prefill * config.endpoints)
    met = sum(sum(q.shards) * max(len(stages) for stages in q.trajectories) for q in questions)
    return {
        "driver_s": round(thinking),
        "reading_s": round(reading),
        "bound_s": round(max(thinking, reading)),
        "shard_tokens": distinct,
        "stages": round(met / distinct, 2),
    }


def arms(config: Any) -> list[Arm]:
    return [
        Arm("naive", shard_first=False, affinity=False, gate=False, memo=False),
        Arm("affinity", gate=False, memo=False),
        Arm("affinity + gate", memo=False),
        Arm("+ memo"),
        *(Arm(f"+ hold {share:g}", hold=share) for share in config.hold),
        *(Arm(f"+ admission x{over:g}", overcommit=over) for over in config.overcommit),
        Arm("+ memo + host cache", host=True),
        Arm("+ admission + host cache", overcommit=1.0, host=True),
    ]


def replay(config_file: str, overrides: list[str], chosen: list[str]) -> dict[str, Any]:
    """The bound, and each arm beside it; printed as they come, one JSON object a line."""
    config = OmegaConf.merge(OmegaConf.load(config_file), OmegaConf.from_dotlist(overrides))
    questions = workload(config)
    least = bound(config, questions)
    result: dict[str, Any] = {
        "overrides": " ".join(overrides),
        "questions": len(questions),
        **least,
    }
    print(json.dumps(result), flush=True)
    result["arms"] = []
    gc.disable()  # millions of objects live at once, and little of them is in cycles
    for arm in arms(config):
        if chosen and arm.name not in chosen:
            continue
        gc.collect()
        began = time.process_time()
        figures = run(step(config, questions, arm))
        over = round(figures["step_s"] / least["bound_s"], 2)
        cpu = round(time.process_time() - began, 1)
        result["arms"].append({"arm": arm.name, **figures, "over_bound": over, "cpu_s": cpu})
        print(json.dumps(result["arms"][-1]), flush=True)
    return result
