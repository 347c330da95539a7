"""A real HTTP server on a real socket, whose replies a test scripts."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

Reply = Callable[[web.Request], Any]


class ScriptedServer:
    """Replies in the order of the script (the last one repeats), and keeps what it was asked."""

    def __init__(self, *script: Reply):
        self.script = list(script)
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.connections: set[Any] = set()
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(await request.json())
        self.headers.append(dict(request.headers))
        self.connections.add(request.transport)
        reply = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        return await reply(request)


@asynccontextmanager
async def serve(*script: Reply) -> AsyncIterator[ScriptedServer]:
    server = ScriptedServer(*script)
    app = web.Application()
    app.router.add_post("/{path:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield server
    finally:
        await runner.cleanup()


def status(code: int, body: Any = None, **headers: str) -> Reply:
    async def reply(request: web.Request) -> web.Response:
        text = body if isinstance(body, str) else json.dumps(body or {"error": {"message": "no"}})
        return web.Response(status=code, text=text, headers=headers)

    return reply


def says(content: Any, finish: str = "stop", **usage: Any) -> Reply:
    """A chat completion with this content (JSON where it isn't a string)."""
    text = content if isinstance(content, str) else json.dumps(content)
    choice = {"index": 0, "message": {"role": "assistant", "content": text}}
    return status(200, {"choices": [{**choice, "finish_reason": finish}], "usage": usage})


def hangs(seconds: float = 30.0) -> Reply:
    async def reply(request: web.Request) -> web.Response:
        await asyncio.sleep(seconds)
        return web.Response(text="{}")

    return reply


def half() -> Reply:
    """Promises 1,000 bytes, sends half a reply and cuts the connection."""

    async def reply(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b'{"choices": [{"message": {"content": "The answ')
        assert request.transport is not None
        request.transport.abort()
        return response

    return reply
