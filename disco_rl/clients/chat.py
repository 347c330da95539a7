"""OpenAI-compatible chat completions: SGLang, vLLM, llama.cpp's server, or a provider."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from disco_rl.clients.http import Endpoint, EndpointError, JsonClient
from disco_rl.engine.protocols import Message


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the server reports them; `cached` of `prompt` came from its prefix cache."""

    prompt: int = 0
    cached: int = 0
    completion: int = 0


@dataclass(frozen=True, slots=True)
class ChatReply:
    """A reply's text, why it ended ("stop" or "length"), and what it cost."""

    text: str
    finish: str
    usage: Usage


class ChatClient(JsonClient):
    """Chat completions of one endpoint."""

    def __init__(self, endpoint: Endpoint):
        if not endpoint.model:
            raise ValueError(f"endpoint {endpoint.name!r} needs a model name")
        super().__init__(endpoint)

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        sampling: Mapping[str, Any] | None = None,
        schema: Mapping[str, Any] | None = None,
        seconds: float | None = None,
    ) -> ChatReply:
        """One reply. `sampling` goes into the request as it is; `schema` constrains decoding.

        With `seconds` there is one try of at most so long, else as many as the endpoint allows. A
        reply that was broken off (aborted, filtered, no reason given) is a failed try.
        Raises `EndpointError`.
        """
        body: dict[str, Any] = {
            **(sampling or {}),
            "model": self.endpoint.model,
            "messages": [dict(message) for message in messages],
            "max_tokens": max_tokens,
        }
        if schema is not None:
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "reply", "strict": True, "schema": dict(schema)},
            }
        url = self.endpoint.url.rstrip("/") + "/chat/completions"
        reply = await (
            self.post(url, body) if seconds is None else self.attempt(url, body, seconds)
        )
        try:
            usage = usage_of(reply)
            choice = reply["choices"][0]
            text = choice["message"]["content"]
            finish = "length" if choice.get("finish_reason") == "length" else "stop"
        except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
            raise EndpointError(
                self.endpoint.name,
                200,
                f"the reply has no choices[0].message.content, or no usage of numbers ({error!r})",
                "check that the url is an OpenAI-compatible endpoint",
                retryable=False,
            ) from error
        return ChatReply(text if isinstance(text, str) else "", finish, usage)

    async def attempt(self, url: str, body: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """As of any endpoint; a reply that something else than its end or the limit ended isn't
        one, and may be whole the next time."""
        reply = await super().attempt(url, body, seconds)
        choices = reply.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        finish = choice.get("finish_reason") if isinstance(choice, dict) else "stop"
        if finish not in ("stop", "length"):
            raise self.broken_off(f"finish_reason={finish!r}")
        return reply


def usage_of(reply: Mapping[str, Any]) -> Usage:
    """Usage in OpenAI's shape, with llama.cpp's `timings` for what was cached."""
    usage = reply.get("usage") or {}
    details = usage.get("prompt_tokens_details") or {}
    timings = reply.get("timings") or {}
    return Usage(
        prompt=int(usage.get("prompt_tokens") or 0),
        cached=int(details.get("cached_tokens") or timings.get("cache_n") or 0),
        completion=int(usage.get("completion_tokens") or 0),
    )
