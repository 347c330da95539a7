"""A scripted Driver for the embedded world, right most of the time and wrong in realistic ways.

It knows a question's chain of facts and answers each prompt from what the evidence shows. Its
flaws are those that the paper reports of untrained Drivers (appendix, behaviour before RL):
questions forwarded whole, malformed plans, unsupported answers, hasty reviews. A model trained on
its episodes has something to unlearn in every part of the reward.
"""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from data_pipeline.world.relations import Fact

NOTHING = "unknown"
"""What the demonstrator answers where the evidence doesn't settle the question."""


@dataclass(frozen=True)
class FlawRates:
    """Probability of each flaw where it can occur, between 0 and 1."""

    invalid: float = 0.25  # a plan that the parser refuses
    forward: float = 0.50  # the whole question as a narrow action
    one_shard: float = 0.10  # a lookup sent to one shard picked at random
    unsupported: float = 0.30  # an answer that the evidence doesn't give
    hasty: float = 0.35  # a review that accepts too early
    doubtful: float = 0.15  # a review that rejects a supported answer

    def without(self) -> "FlawRates":
        return replace(self, **dict.fromkeys(self.__dataclass_fields__, 0.0))


class Demonstrator:
    """Replies to the `brief` prompts of one episode about `chain`."""

    def __init__(
        self,
        question: str,
        chain: Sequence[Fact],
        n_shards: int,
        rng: random.Random,
        rates: FlawRates,
    ):
        self._question = question
        self._chain = tuple(chain)
        self._n_shards = n_shards
        self._rng = rng
        self._rates = rates

    def reply(self, messages: Sequence[dict[str, str]]) -> str:
        """The reply to a prompt, a repair turn included. Raises `ValueError` on a foreign one."""
        prompt = messages[0]["content"]
        kind = prompt.split(None, 1)[0]
        known = self._known(prompt)
        if kind == "plan":
            return self._plan(known, repair=len(messages) > 1)
        if kind == "answer":
            # The blank makes a name the same tokens here as in the evidence, so it can be copied.
            return " " + self._answer(known, prompt)
        if kind == "review":
            return self._review(known, prompt)
        raise ValueError(f"not a brief prompt: it begins with {kind!r}")

    def _known(self, prompt: str) -> int:
        """How many hops, from the first on, stand in one line of the evidence."""
        evidence = [
            line
            for line in prompt.split("\n")
            if not line.startswith(("question:", "answer:")) and "gap:" not in line
        ]
        for hop, fact in enumerate(self._chain):
            if not any(fact.subject in line and fact.object in line for line in evidence):
                return hop
        return len(self._chain)

    def _roll(self, rate: float) -> bool:
        return self._rng.random() < rate

    def _plan(self, known: int, repair: bool) -> str:
        fact = self._chain[min(known, len(self._chain) - 1)]
        instruction = fact.relation.lookup(fact.subject)
        if self._roll(self._rates.forward):
            instruction = self._question
        shards: str | list[int] = "all"
        if self._roll(self._rates.one_shard):
            shards = [self._rng.randrange(self._n_shards)]
        narrow = {"id": "n1", "op": "narrow", "instruction": instruction, "shards": shards}
        wide = {"id": "w1", "op": "wide", "instruction": "answer", "inputs": ["n1"]}
        nodes = [narrow, wide]
        if not repair and self._roll(self._rates.invalid):
            return self._broken(narrow, wide)
        return json.dumps({"nodes": nodes})

    def _broken(self, narrow: dict, wide: dict) -> str:
        flaw = self._rng.randrange(5)
        if flaw == 0:  # wrong parent
            return json.dumps({"nodes": [narrow, wide | {"inputs": ["n2"]}]})
        if flaw == 1:  # no terminal
            return json.dumps({"nodes": [narrow]})
        if flaw == 2:  # a lookup that leads nowhere
            return json.dumps({"nodes": [narrow, narrow | {"id": "n2"}, wide | {"inputs": ["n2"]}]})
        if flaw == 3:  # the same id twice
            return json.dumps({"nodes": [narrow, wide | {"id": "n1"}]})
        return json.dumps({"nodes": [wide | {"inputs": ["w1"]}]})  # reads itself

    def _answer(self, known: int, prompt: str) -> str:
        if self._roll(self._rates.unsupported):
            names = [fact.subject for fact in self._chain] + [f.object for f in self._chain[:-1]]
            return self._rng.choice([name for name in names if name in prompt])
        return self._chain[-1].object if known == len(self._chain) else NOTHING

    def _review(self, known: int, prompt: str) -> str:
        right = known == len(self._chain) and prompt.endswith(f"answer: {self._chain[-1].object}")
        accept = not self._roll(self._rates.doubtful) if right else self._roll(self._rates.hasty)
        if accept:
            return json.dumps({"accept": True})
        fact = self._chain[min(known, len(self._chain) - 1)]
        return json.dumps({"accept": False, "gap": fact.relation.gap(fact.subject)})


def phrases() -> tuple[str, ...]:
    """Skeleton pieces of plans and reviews that a small tokenizer may keep as one token each."""
    return (
        '{"nodes": [{"id": "', '", "op": "narrow", "instruction": "',
        '", "shards": "all"}, {"id": "',
        '", "op": "wide", "instruction": "', '", "inputs": ["', '"]}]}', '{"accept": true}',
        '{"accept": false, "gap": "', '"}', '", "shards": [', "]}, {", '"id": "',
    )  # fmt: skip
