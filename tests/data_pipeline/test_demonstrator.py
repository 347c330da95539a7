"""The scripted Driver: right without flaws, wrong in every stated way with them."""

import asyncio
import json
import random

import pytest

from data_pipeline.world import WorldConfig, make_world
from data_pipeline.world.demonstrator import Demonstrator, FlawRates
from disco_rl.core.plan import PlanError, PlanLimits
from disco_rl.core.plan_parser import parse_plan
from disco_rl.core.trajectory import Generation, StopReason
from disco_rl.engine.config import EpisodeConfig
from disco_rl.engine.episode import run_episode
from disco_rl.engine.pool import WorkerPool
from disco_rl.engine.workers import build_worker
from disco_rl.prompts import load_prompts

pytest.importorskip("bm25s", reason="the retriever Worker needs bm25s")


class Scripted:
    def __init__(self, demonstrator: Demonstrator):
        self._demonstrator = demonstrator

    def count(self, messages) -> int:
        return sum(len(message["content"]) // 3 for message in messages)

    async def generate(self, messages, *, max_tokens, schema=None) -> Generation:
        return Generation(self._demonstrator.reply(messages))


def episodes(tmp_path, rates: FlawRates, n_questions: int):
    world = make_world(3, "train", n_questions, WorldConfig(lengths={2048: 1.0}))
    pool = WorkerPool(
        build_worker({"kind": "retriever", "cache_dir": str(tmp_path)}), max_findings=4
    )
    config = EpisodeConfig(load_prompts("brief"), window=2048, max_call_tokens=128, max_stages=6)
    rng = random.Random(0)

    async def all_of_them():
        return [
            (
                question,
                await run_episode(
                    question.sample.question,
                    world.region(question.sample.context_id).context,
                    Scripted(
                        Demonstrator(
                            question.sample.question,
                            question.chain,
                            question.sample.n_shards,
                            rng,
                            rates,
                        )
                    ),
                    pool,
                    config,
                ),
            )
            for question in world.questions
        ]

    return asyncio.run(all_of_them())


def test_without_flaws_it_answers_through_the_real_engine_and_worker(tmp_path):
    done = episodes(tmp_path, FlawRates().without(), 48)
    right = [
        trajectory.answer == question.chain[-1].object and trajectory.stop is StopReason.ACCEPTED
        for question, trajectory in done
    ]
    assert sum(right) / len(right) > 0.9
    assert all(call.error is None for _, trajectory in done for call in trajectory.calls)
    stages = [(len(q.chain), len(t.stages)) for q, t in done if t.stop is StopReason.ACCEPTED]
    assert all(n_stages >= hops for hops, n_stages in stages)  # a stage follows one hop at most


def test_flaws_cost_accuracy_and_make_every_kind_of_mistake(tmp_path):
    done = episodes(tmp_path, FlawRates(), 64)
    calls = [call for _, trajectory in done for call in trajectory.calls]
    kinds = {call.error for call in calls}
    assert {"unknown_parent", "no_terminal", "duplicate_id", None} <= kinds
    right = sum(t.answer == q.chain[-1].object for q, t in done) / len(done)
    assert 0.02 < right < 0.5
    forwarded = [
        node.instruction == q.sample.question
        for q, t in done
        for stage in t.stages
        if stage.plan
        for node in stage.plan.narrow
    ]
    assert 0.3 < sum(forwarded) / len(forwarded) < 0.7


@pytest.mark.parametrize("seed", range(40))
def test_a_broken_plan_is_always_refused(seed):
    world = make_world(3, "train", 1)
    question = world.questions[0]
    rates = FlawRates().without()
    broken = Demonstrator(
        question.sample.question,
        question.chain,
        question.sample.n_shards,
        random.Random(seed),
        FlawRates(invalid=1.0, forward=0, one_shard=0, unsupported=0, hasty=0, doubtful=0),
    )
    prompt = f"plan {question.sample.n_shards}\nquestion: {question.sample.question}\n"
    text = broken.reply([{"role": "user", "content": prompt}])
    json.loads(text)
    with pytest.raises(PlanError):
        parse_plan(text, PlanLimits(question.sample.n_shards))
    assert rates.invalid == 0.0


def test_a_foreign_prompt_is_refused():
    question = make_world(3, "train", 1).questions[0]
    script = Demonstrator("Q?", question.chain, 4, random.Random(0), FlawRates())
    with pytest.raises(ValueError, match="brief prompt"):
        script.reply([{"role": "user", "content": "Summarise this."}])
