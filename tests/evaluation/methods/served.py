"""A scripted model on a real socket whose replies depend on the prompt, and what it was asked."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from disco_rl.clients.chat import ChatClient
from disco_rl.clients.http import Endpoint
from disco_rl.evaluation.calls import Calls, ChatModel
from disco_rl.evaluation.journal import Journal
from disco_rl.evaluation.ledger import Spent
from disco_rl.evaluation.methods.protocol import Document
from disco_rl.evaluation.tokens import WordTokenizer, count
from tests.clients.scripted import Reply, ScriptedServer, says, serve

WORDS = WordTokenizer()


def words(text: str) -> int:
    return count(WORDS, text)


def document(text: str) -> Document:
    return Document("doc", lambda: text)


def talks(say: Callable[[str], str]) -> Reply:
    """Replies to the last message; usage is counted in words and marks."""

    async def reply(request: web.Request) -> web.StreamResponse:
        messages = (await request.json())["messages"]
        text = say(messages[-1]["content"])
        prompt = sum(words(m["content"]) for m in messages)
        return await says(text, prompt_tokens=prompt, completion_tokens=words(text))(request)

    return reply


@dataclass
class Bench:
    server: ScriptedServer
    calls: Calls

    def prompts(self) -> list[str]:
        return [body["messages"][-1]["content"] for body in self.server.bodies]

    def spent(self, role: str) -> Spent:
        return self.calls.ledger.of(role)

    def check_tokens(self) -> None:
        """The ledger holds exactly what was sent."""
        sent = sum(words(m["content"]) for b in self.server.bodies for m in b["messages"])
        assert sum(s.prompt for s in self.calls.ledger.roles.values()) == sent
        assert sum(s.calls for s in self.calls.ledger.roles.values()) == len(self.server.bodies)


@asynccontextmanager
async def bench(say: Callable[[str], str], journal: Journal | None = None) -> AsyncIterator[Bench]:
    async with serve(talks(say)) as server:
        point = Endpoint(server.url, "scripted", max_attempts=1)
        async with ChatClient(point) as driver, ChatClient(point) as worker:
            models: dict[str, Any] = {"driver": ChatModel(driver), "worker": ChatModel(worker)}
            yield Bench(server, Calls("item", models, journal=journal))
