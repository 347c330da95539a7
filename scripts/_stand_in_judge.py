"""A judge's endpoint without a model: the match judge's verdicts, over the API of a real one.

Unlike that judge it sees through the paraphrases of the reward check, which a model must know.
"""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import web

from disco_rl.rewards import MatchJudge
from disco_rl.rewards.probes import PARAPHRASES

NAME = "Qwen/Qwen3-235B-A22B-Instruct-2507"


@contextmanager
def judging(port: int = 0) -> Iterator[str]:
    """Its address; it serves from a thread of this process."""
    address: list[str] = []
    up, stop = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        runner = web.AppRunner(_application(), access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        address.append(f"http://127.0.0.1:{runner.addresses[0][1]}/v1")
        up.set()
        await stop.wait()
        await runner.cleanup()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    if not up.wait(30):
        raise RuntimeError("the stand-in judge didn't start")
    try:
        yield address[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()


def _application() -> web.Application:
    async def models(request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": NAME, "object": "model"}]})

    async def complete(request: web.Request) -> web.Response:
        body = await request.json()
        reply = json.dumps({"verdict": await _verdict(body["messages"][-1]["content"])})
        return web.json_response(
            {
                "id": "1",
                "object": "chat.completion",
                "created": 0,
                "model": body["model"],
                "choices": [
                    {
                        "index": 0,
                        "message": {"role": "assistant", "content": reply},
                        "finish_reason": "stop",
                    }
                ],
                "usage": {"prompt_tokens": 400, "completion_tokens": 8, "total_tokens": 408},
            }
        )

    app = web.Application(client_max_size=2**24)
    app.router.add_get("/v1/models", models)
    app.router.add_post("/v1/chat/completions", complete)
    return app


async def _verdict(prompt: str) -> str:
    asked: dict[str, Any] = json.loads(prompt.split("\n")[0])  # rewards/delimit.py
    judge = MatchJudge()
    if "evidence" in asked:
        said = await judge.supports(asked["question"], asked["reply"], asked["evidence"])
    else:
        said = await judge.verdict(asked["question"], asked["gold_answers"], _bare(asked["reply"]))
    return said.value


def _bare(reply: str) -> str:
    """What stands in the sentence of a paraphrase, or the reply as it is."""
    for sentence in PARAPHRASES:
        before, after = sentence.split("{}")
        if reply.startswith(before) and reply.endswith(after):
            return reply.removeprefix(before).removesuffix(after)
    return reply
