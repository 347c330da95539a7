"""The chat Worker: a small language model behind any OpenAI-compatible endpoint."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from disco_rl.core.shards import Context
from disco_rl.engine.protocols import Message, ModelError, Quote, Scan
from disco_rl.engine.workers.quotes import locate
from disco_rl.prompts import load_prompts

SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "found": {"type": "boolean"},
        "quotes": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"text": {"type": "string"}},
                "required": ["text"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["found", "quotes"],
    "additionalProperties": False,
}
"""What a Worker must reply; servers constrain the decoding to it, and the reply is checked."""


@dataclass(frozen=True)
class ChatWorkerConfig:
    """The endpoint and how to ask it. `sampling` goes into the request as it is.

    Greedy by default, so that an identical call has an identical answer. Times in seconds.
    """

    url: str
    model: str
    api_key_env: str | None = None
    prompts: str = "full"
    max_tokens: int = 512
    sampling: Mapping[str, Any] = field(default_factory=lambda: {"temperature": 0.0})
    deadline_s: float = 300.0
    attempt_s: float = 120.0
    max_attempts: int = 6
    max_connections: int = 256


class ChatWorker:
    """A `Worker` that reads a shard with a language model and quotes from it."""

    def __init__(self, config: ChatWorkerConfig):
        # aiohttp arrives with the Worker that needs it.
        from disco_rl.clients.chat import ChatClient
        from disco_rl.clients.http import Endpoint

        self.config = config
        self._prompts = load_prompts(config.prompts)
        self._client = ChatClient(
            Endpoint(
                config.url,
                config.model,
                config.api_key_env,
                deadline_s=config.deadline_s,
                attempt_s=config.attempt_s,
                max_attempts=config.max_attempts,
                max_connections=config.max_connections,
            )
        )

    def messages(self, instruction: str, text: str) -> list[Message]:
        """The prompt. The shard comes first, so that a server's prefix cache serves all calls."""
        content = self._prompts.render("worker", shard=text, instruction=instruction)
        return [{"role": "user", "content": content}]

    async def scan(self, instruction: str, context: Context, shard: int) -> Scan:
        text = context.read(shard)
        reply = await self._client.complete(
            self.messages(instruction, text),
            max_tokens=self.config.max_tokens,
            sampling=self.config.sampling,
            schema=SCHEMA,
        )
        if reply.finish == "length":
            raise self._malformed(f"cut off at worker.max_tokens={self.config.max_tokens}")
        quotes = tuple(_quote(q, text) for q in self._parse(reply.text))
        usage = reply.usage
        return Scan(quotes, usage.prompt, usage.cached, usage.completion)

    async def close(self) -> None:
        await self._client.close()

    def _parse(self, reply: str) -> list[str]:
        """The distinct quotes of a reply, in order; [] only where it says that nothing is found."""
        try:
            data = json.loads(reply)
        except ValueError as error:
            raise self._malformed(f"not JSON: {reply[:80]!r}") from error
        found = data.get("found") if isinstance(data, dict) else None
        quotes = data.get("quotes") if isinstance(data, dict) else None
        if not isinstance(found, bool) or not isinstance(quotes, list):
            raise self._malformed(f"not of the schema: {reply[:80]!r}")
        texts = [q.get("text") if isinstance(q, dict) else None for q in quotes]
        if not all(isinstance(text, str) for text in texts):
            raise self._malformed(f"a quote without text: {reply[:80]!r}")
        kept = [text for text in dict.fromkeys(texts) if text and text.strip()]
        if found and not kept:
            raise self._malformed("it says found, and quotes nothing")
        return kept if found else []

    def _malformed(self, why: str) -> ModelError:
        return ModelError(
            f"worker {self.config.model!r} at {self._client.endpoint.name}: reply {why}; check "
            "that the server constrains decoding to the JSON schema, or raise worker.max_tokens"
        )


def _quote(quote: str, text: str) -> Quote:
    span = locate(quote, text)
    return Quote(quote.strip() if span is None else text[span[0] : span[1]], span)
