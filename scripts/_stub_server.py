"""A chat endpoint that computes nothing: replies after a delay, quoting what was asked of it.

    python scripts/_stub_server.py PORT [DELAY_S]

Prints its address once it serves. POST /control {"delay": s} changes the delay while it runs; GET
/counts says how many requests came and how many replies were sent.
"""

import asyncio
import json
import re
import sys

from aiohttp import web

ASKED = re.compile(r"^Request: (.*)$", re.MULTILINE)  # prompts/full/worker.md


def application(delay: float) -> web.Application:
    state = {"delay": delay, "requests": 0, "replies": 0}

    async def complete(request: web.Request) -> web.Response:
        state["requests"] += 1
        prompt = json.loads(await request.read())["messages"][-1]["content"]
        if state["delay"]:
            await asyncio.sleep(state["delay"])
        asked = ASKED.findall(prompt[-2000:])
        reply = json.dumps({"found": bool(asked), "quotes": [{"text": text} for text in asked]})
        state["replies"] += 1
        message = {"role": "assistant", "content": reply}
        tokens = len(prompt) // 4
        return web.json_response(
            {
                "id": "1",
                "object": "chat.completion",
                "created": 0,
                "model": "stub",
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": {
                    "prompt_tokens": tokens,
                    "completion_tokens": 12,
                    "total_tokens": tokens + 12,
                    "prompt_tokens_details": {"cached_tokens": 0},
                },
            }
        )

    async def control(request: web.Request) -> web.Response:
        state.update(await request.json())
        return web.json_response(state)

    async def counts(request: web.Request) -> web.Response:
        return web.json_response(state)

    async def health(request: web.Request) -> web.Response:
        return web.Response()

    app = web.Application(client_max_size=2**24)
    app.router.add_post("/v1/chat/completions", complete)
    app.router.add_post("/control", control)
    app.router.add_get("/counts", counts)
    app.router.add_get("/health", health)
    return app


async def serve(port: int, delay: float) -> None:
    runner = web.AppRunner(application(delay), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, backlog=1024).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}/v1", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0.0))
