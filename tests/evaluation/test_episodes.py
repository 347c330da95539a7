"""Evaluation keeps every episode, in the order of the samples, failures included."""

import asyncio

from disco_rl.core.sample import Hop, Sample
from disco_rl.core.shards import TextContext
from disco_rl.core.trajectory import StopReason
from disco_rl.engine.config import EpisodeConfig
from disco_rl.engine.pool import WorkerPool
from disco_rl.engine.protocols import ModelError
from disco_rl.evaluation.episodes import evaluate
from disco_rl.prompts import load_prompts
from disco_rl.rewards import MatchJudge
from tests.fakes import ScriptedModel, SubstringWorker, count_words

CONTEXT = TextContext.cut("c", "Ann was born in Rome. Bo is a baker. ", count_words, 8)
PLAN = (
    '{"nodes": [{"id": "n1", "op": "narrow", "instruction": "Find the birthplace of Ann."},'
    ' {"id": "w1", "op": "wide", "instruction": "answer", "inputs": ["n1"]}]}'
)


class PerQuestion:
    """A script for each question, so that episodes may run in any order."""

    def __init__(self, scripts):
        self.scripts = {question: ScriptedModel(replies) for question, replies in scripts.items()}

    def _script(self, messages):
        text = messages[-1]["content"]
        return next(model for question, model in self.scripts.items() if question in text)

    def count(self, messages):
        return self._script(messages).count(messages)

    async def generate(self, messages, **kwargs):
        return await self._script(messages).generate(messages, **kwargs)


def sample(index: int, question: str) -> Sample:
    hop = Hop("Where was Ann born?", "Rome", (), (0,), (0, 21))
    return Sample(index, question, ("Rome",), "c", 2, 9, (hop,), "test")


def test_right_wrong_and_failed_episodes_are_all_there():
    model = PerQuestion(
        {
            "first?": [PLAN, "Rome", '{"accept": true}'],
            "second?": [PLAN, "Paris", '{"accept": true}'],
            "third?": [ModelError("the server is gone")],
        }
    )
    done: list[None] = []
    scored = asyncio.run(
        evaluate(
            [sample(i, q) for i, q in enumerate(model.scripts)],
            {"c": CONTEXT}.__getitem__,
            model,
            WorkerPool(SubstringWorker()),
            EpisodeConfig(load_prompts("brief"), window=400, max_call_tokens=100),
            MatchJudge(),
            lambda: done.append(None),
        )
    )
    assert [item.sample.index for item in scored] == [0, 1, 2]
    assert [item.parts.values()["accuracy"] for item in scored] == [1.0, 0.0, None]
    assert scored[0].parts.values()["evidence"] == 1.0
    assert scored[2].trajectory.stop is StopReason.ERROR
    assert "server is gone" in (scored[2].parts.failure or "")
    assert len(done) == 3
