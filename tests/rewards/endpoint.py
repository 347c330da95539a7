"""A model judge against a scripted endpoint on a real socket."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from disco_rl.rewards import LLMJudge, build_judge
from tests.clients.scripted import Reply, ScriptedServer, serve

QUICK = {"attempt_s": 0.4, "deadline_s": 3.0, "max_attempts": 1}


def judge_at(url: str, **changes: Any) -> LLMJudge:
    made = build_judge({"name": "llm", "url": url, "model": "judge", **QUICK, **changes})
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
