"""Plans, reviews and a config for episode tests, and a model that replies by what it is asked."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence

from disco_rl.core.shards import TextContext
from disco_rl.core.trajectory import Generation, Trajectory
from disco_rl.engine.config import EpisodeConfig
from disco_rl.engine.protocols import Message
from disco_rl.prompts import load_prompts
from tests.fakes import count_words

ACCEPT = '{"accept": true}'
TEXT = "Ada was born in 1815. Ada died in 1852. Bob was born in 1900. Bob likes Ada."
CONTEXT = TextContext.cut("doc", TEXT, count_words, 5)
assert len(CONTEXT.shards) == 4


def reject(gap: str) -> str:
    return json.dumps({"accept": False, "gap": gap})


def narrow(id: str, instruction: str = "", shards: str | list[int] = "all") -> dict:
    return {
        "id": id,
        "op": "narrow",
        "instruction": instruction or f"Find {id}.",
        "shards": shards,
    }


def wide(id: str, *inputs: str, instruction: str = "") -> dict:
    return {"id": id, "op": "wide", "instruction": instruction or f"Do {id}.", "inputs": inputs}


def plan(*nodes: dict) -> str:
    return json.dumps({"nodes": nodes})


PLAN = plan(narrow("n1", "Find Ada."), wide("w1", "n1", instruction="When was Ada born?"))


def config(**changes) -> EpisodeConfig:
    values = {"window": 2000, "max_call_tokens": 200, "deadline_s": 20.0} | changes
    return EpisodeConfig(prompts=load_prompts("full"), **values)


def user(messages: Sequence[Message]) -> str:
    """The first user message of a prompt: its task, without a repair turn."""
    return next(m["content"] for m in messages if m["role"] == "user")


class AskedModel:
    """Answers each prompt by a function of it; keeps order, prompts, limits and schemas."""

    def __init__(self, reply: Callable[[str], Awaitable[str]]):
        self.reply = reply
        self.prompts: list[str] = []

    def count(self, messages: Sequence[Message]) -> int:
        return sum(len(message["content"].split()) + 1 for message in messages)

    async def generate(self, messages, *, max_tokens, schema=None) -> Generation:
        self.prompts.append(user(messages))
        return Generation(await self.reply(user(messages)))


def kind_of(prompt: str) -> str:
    """Which of the Driver's acts a prompt of the `full` set is."""
    if prompt.startswith("Write a plan"):
        return "plan"
    return "review" if prompt.startswith("Judge whether") else "synthesize"


def run(coroutine) -> Trajectory:
    """Runs an episode in a loop of its own and checks that it leaves no task behind."""

    async def checked():
        result = await asyncio.wait_for(coroutine, 30)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks left running: {left}"
        return result

    return asyncio.run(checked())
