"""A model judge against a scripted endpoint on a real socket."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from disco_rl.rewards import LLMJudge, Verdict, build_judge
from tests.clients.scripted import Reply, ScriptedServer, half, hangs, says, serve, status

YES, NO, UNDECIDED = Verdict.YES, Verdict.NO, Verdict.UNDECIDED
WHO = ("Who founded the Guild?", ["Ada Vey", "A. Vey"], "It was Ada Vey.")

# One try, but a patient one: the machine may be busy.
ONE_TRY = {"attempt_s": 20.0, "deadline_s": 60.0, "max_attempts": 1}


def judge_at(url: str, **changes: Any) -> LLMJudge:
    made = build_judge({"name": "llm", "url": url, "model": "judge", **ONE_TRY, **changes})
    assert isinstance(made, LLMJudge)
    return made


@asynccontextmanager
async def judging(*script: Reply, **changes: Any) -> AsyncIterator[tuple[LLMJudge, ScriptedServer]]:
    async with serve(*script) as server:
        judge = judge_at(server.url, **changes)
        try:
            yield judge, server
        finally:
            await judge.close()


def verdict(word: str, **usage: Any) -> Reply:
    return says({"verdict": word}, **usage)


def drips(text: str, seconds: float) -> Reply:
    """One byte at a time, each `seconds` after the last."""

    async def reply(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": str(len(text))})
        await response.prepare(request)
        for byte in text.encode():
            await response.write(bytes([byte]))
            await asyncio.sleep(seconds)
        return response

    return reply


def asked(body: dict[str, Any]) -> dict[str, Any]:
    """The record that the judge was shown."""
    line = body["messages"][-1]["content"].split("\n")[0]
    record = json.loads(line)
    assert isinstance(record, dict)
    return record


FAILURES: list[tuple[Reply, str]] = [
    (status(429), "status 429"),
    (status(500, "out of memory"), "out of memory"),
    (status(400, {"error": {"message": "maximum context length"}}), "longer context"),
    (status(401), "check the key"),
    (half(), "check that the server is up"),
    (status(200, "{not json"), "not JSON"),
    (status(200, {"choices": []}), "choices"),
]
SLOW: list[Reply] = [hangs(), drips('{"choices": [{"message": {"content": "yes"}}]}', 0.1)]
UNPARSED: list[tuple[Reply, str]] = [
    (says('{"verdict": "ye'), "no verdict"),
    (says('{"verdict": "yes"}', "length"), "cut off at judge.max_tokens"),
    (says({"verdict": "correct"}), "no verdict"),
    (says({"verdict": True}), "no verdict"),
    (says({"answer": "yes"}), "no verdict"),
    (says(["yes"]), "no verdict"),
    (says(""), "no verdict"),
    (says("The reply says YES, which isn't the answer."), "no verdict"),
    (says("<think>The reply is right, so yes"), "thinking never ended"),
]
"""What an endpoint may do wrong, and what the error says of it."""
