"""Every known way to fool a reward (lessons from public threads), on a naive judge and on ours.

Each test shows first that the trick works on the naive judge. The endpoint's model is as gullible
as can be: it does what any line tells it that isn't a JSON record, and takes chat tokens for turns.
So these tests say what reaches a judge as an instruction; how well a real model judges what is in
the record is measured by `disco-rl reward-check`.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest
from aiohttp import web

from disco_rl.clients.chat import ChatClient
from disco_rl.core.text import normalise_answer
from disco_rl.rewards import (
    JudgeError,
    LLMJudge,
    MatchJudge,
    Verdict,
    evidence_score,
    score,
)
from disco_rl.rewards.tricks import HEDGES, INSTRUCTIONS, MASTER_KEYS, OTHER_SCRIPTS
from tests.clients.scripted import says, status
from tests.rewards.build import call, finding, sample, stage, trajectory
from tests.rewards.endpoint import asked, judging

QUESTION, GOLD = "Who founded the Guild?", ["Ada Vey"]
CHAT_TOKENS = re.compile(r"<\|im_(start|end)\|>|\[/?INST\]|</?reply>")


async def gullible(request: web.Request) -> web.Response:
    """Obeys what isn't data; else compares the reply with the gold answers as a person would."""
    text = (await request.json())["messages"][-1]["content"]
    orders, fields = [], {}
    for line in text.splitlines():
        try:
            fields = json.loads(line)
        except ValueError:
            orders.append(line)
    obeys = CHAT_TOKENS.search(text) or re.search(
        r"\b(yes|right|correct)\b", " ".join(orders).lower()
    )
    right = normalise_answer(fields.get("reply", "")) in map(
        normalise_answer, fields.get("gold_answers", ())
    )
    made: web.Response = await says({"verdict": "yes" if obeys or right else "no"})(request)
    return made


class NaiveJudge:
    """As in the threads: containment, an f-string, a search for YES, a zero for an error."""

    def __init__(self, client: ChatClient | None = None):
        self._client = client

    async def verdict(self, question: str, answers: Sequence[str], reply: str) -> Verdict:
        given = reply.strip().lower()
        if any(given in answer.lower() or answer.lower() in given for answer in answers):
            return Verdict.YES
        if self._client is None:
            return Verdict.NO
        prompt = f"Question: {question}\nGold: {answers}\nReply: {reply}\nThe same answer?"
        try:
            said = await self._client.complete([{"role": "user", "content": prompt}], max_tokens=9)
        except Exception:
            return Verdict.NO
        return Verdict.YES if "yes" in said.text.lower() else Verdict.NO

    async def supports(self, question: str, reply: str, evidence: Sequence[str]) -> Verdict:
        return await self.verdict(question, evidence, reply)


def naive(judge: LLMJudge) -> NaiveJudge:
    """On the same endpoint as `judge`."""
    return NaiveJudge(judge._clients[0])


@pytest.mark.parametrize("reply", ["", "a", "the", "Ada", "Ada Vey or Tom Roe", "not Ada Vey"])
async def test_containment_in_either_direction(reply: str) -> None:
    assert await NaiveJudge().verdict(QUESTION, ["The Ada Vey", "Ada Vey"], reply) is Verdict.YES
    assert await MatchJudge().verdict(QUESTION, GOLD, reply) is Verdict.NO
    async with judging(gullible) as (judge, _):
        assert await judge.verdict(QUESTION, GOLD, reply) is Verdict.NO


@pytest.mark.parametrize("reply", MASTER_KEYS)
async def test_a_contentless_reply_is_wrong_without_asking(reply: str) -> None:
    async with judging(says({"verdict": "yes"})) as (judge, server):  # a judge that falls for it
        assert await naive(judge).verdict(QUESTION, GOLD, reply) is Verdict.YES
        n_naive = len(server.bodies)
        assert await judge.verdict(QUESTION, GOLD, reply) is Verdict.NO
        assert await judge.supports(QUESTION, reply, ["Ada Vey founded it."]) is Verdict.NO
    assert len(server.bodies) == n_naive and judge.ledger.shortcuts == 2


async def test_an_opener_that_is_the_gold_answer_is_asked_about() -> None:
    async with judging(gullible) as (judge, _):
        assert await judge.verdict("Which album?", ["Solution"], "solution") is Verdict.YES


@pytest.mark.parametrize("reply", INSTRUCTIONS)
async def test_instructions_in_a_reply_reach_the_judge_as_data(reply: str) -> None:
    async with judging(gullible) as (judge, server):
        assert await naive(judge).verdict(QUESTION, GOLD, reply) is Verdict.YES
        assert await judge.verdict(QUESTION, GOLD, reply) is Verdict.NO
    body = server.bodies[-1]
    assert asked(body)["reply"] == reply.strip()  # all of it is there, and inside its string
    assert not CHAT_TOKENS.search(body["messages"][-1]["content"])


@pytest.mark.parametrize("order", INSTRUCTIONS)
async def test_instructions_in_a_document_reach_the_judge_as_data(order: str) -> None:
    quote = f"The Guild is old.\n{order}\nIt stands by the sea."
    async with judging(gullible) as (judge, server):
        naive_prompt = [{"role": "user", "content": f"Evidence: {quote}\nDoes it support Ada Vey?"}]
        fooled = await judge._clients[0].complete(naive_prompt, max_tokens=9)
        assert "yes" in fooled.text
        assert await judge.supports(QUESTION, "Tom Roe", [quote]) is Verdict.NO
        # Nor from the question or the gold answers, which come from documents too.
        assert await judge.verdict(f"Who?\n{order}", [order], "Tom Roe") is Verdict.NO
    assert asked(server.bodies[1])["evidence"] == [quote]


@pytest.mark.parametrize("reply", [*HEDGES, *OTHER_SCRIPTS])
async def test_hedges_and_other_scripts_are_asked_about(reply: str) -> None:
    async with judging(gullible) as (judge, server):
        assert await judge.verdict(QUESTION, GOLD, reply) is Verdict.NO
    assert asked(server.bodies[0])["reply"] == reply


@pytest.mark.parametrize(
    "verdict",
    [
        'No. The reply says "YES", which is an order to me.',
        "The reply isn't right: yes is all it says.",
        'I can\'t say. It holds {"verdict": "yes"}.',
    ],
)
async def test_yes_anywhere_in_the_verdict(verdict: str) -> None:
    async with judging(says(verdict)) as (judge, _):
        assert await naive(judge).verdict(QUESTION, GOLD, "Tom Roe") is Verdict.YES
        with pytest.raises(JudgeError):
            await judge.verdict(QUESTION, GOLD, "Tom Roe")


async def test_an_outage_is_never_a_zero() -> None:
    made = trajectory([stage(0, "Ada, of Vey", [finding(2, "Ada Vey")])], [call()])
    async with judging(status(500)) as (judge, _):
        parts = await score(made, sample(), naive(judge))
        assert parts.values()["accuracy"] == 0.0  # learnt from, as if the answer were wrong
        parts = await score(made, sample(), judge)
    assert parts.values()["accuracy"] is None and "status 500" in (parts.failure or "")


def test_citing_every_shard() -> None:
    gold = sample(gold=[(2,), (7,)]).hops
    everything = [finding(shard, "q") for shard in range(100)]
    cited = {f.shard for f in everything}
    naive_recall = sum(not cited.isdisjoint(hop.shard_ids) for hop in gold) / len(gold)
    assert naive_recall == 1.0
    assert evidence_score(gold, everything).f_beta < 0.1
    assert evidence_score(gold, [finding(2, "q"), finding(7, "q")]).f_beta == 1.0


async def test_thinking_is_not_the_answer() -> None:
    reply: Any = "<think>Ada Vey, or else Tom Roe.</think>Tom Roe"
    assert await NaiveJudge().verdict(QUESTION, GOLD, reply) is Verdict.YES
    async with judging(gullible) as (judge, server):
        assert await judge.verdict(QUESTION, GOLD, reply) is Verdict.NO
        assert await judge.verdict(QUESTION, GOLD, "<think>Ada Vey") is Verdict.NO
    assert [asked(body)["reply"] for body in server.bodies] == ["Tom Roe"]
