"""A chat endpoint as the Worker pool sees it: one try at a time, health, capacity."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from disco_rl.clients.chat import ChatClient, ChatReply
from disco_rl.clients.http import Endpoint, EndpointError
from disco_rl.engine.protocols import Message

_PROBE_S = 5.0


@dataclass(frozen=True, slots=True)
class Request:
    """Makes a prompt when its turn comes, so that a call that waits holds no text.

    `hold_s`: for so long the server is asked to keep it, by SGLang's eviction by priority, which
    is the time until which it's kept (None: the server isn't told anything).
    """

    messages: Callable[[], Sequence[Message]]
    hold_s: float | None = None


class ChatBackend:
    """A `Backend` of the router: chat completions of one endpoint, all of one shape."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        max_tokens: int = 512,
        sampling: Mapping[str, Any] | None = None,
        schema: Mapping[str, Any] | None = None,
    ):
        self._client = ChatClient(endpoint)
        self._max_tokens, self._sampling, self._schema = max_tokens, sampling, schema

    @property
    def name(self) -> str:
        return self._client.endpoint.name

    async def ask(self, request: Request, seconds: float) -> ChatReply:
        sampling = self._sampling
        if request.hold_s is not None:
            sampling = {**(sampling or {}), "priority": int(time.time() + request.hold_s)}
        return await self._client.complete(
            request.messages(),
            max_tokens=self._max_tokens,
            sampling=sampling,
            schema=self._schema,
            seconds=seconds,
        )

    async def healthy(self) -> bool:
        """By `/health` (SGLang, vLLM, llama.cpp), or by the list of models where there is none."""
        point = self._client.endpoint
        try:
            status, _ = await self._client.get(f"{point.root}/health", _PROBE_S)
            if status in (404, 405):
                status, _ = await self._client.get(f"{point.url.rstrip('/')}/models", _PROBE_S)
        except EndpointError:
            return False
        return status == 200

    async def kv_tokens(self) -> int | None:
        """Tokens that the server's KV cache holds, by its own report; None where it has none."""
        for path, read in (("/server_info", _sglang), ("/props", _llamacpp)):
            try:
                status, text = await self._client.get(self._client.endpoint.root + path, _PROBE_S)
                tokens = read(json.loads(text)) if status == 200 else 0
            except (EndpointError, ValueError, KeyError, TypeError):
                continue
            if tokens > 0:
                return tokens
        return None

    async def close(self) -> None:
        await self._client.close()


def _sglang(info: dict[str, Any]) -> int:
    if "max_total_num_tokens" in info:
        return int(info["max_total_num_tokens"])
    states = info["internal_states"]  # one a data-parallel rank (0.5.23)
    return sum(int(state["memory_usage"]["token_capacity"]) for state in states)


def _llamacpp(props: dict[str, Any]) -> int:
    return int(props["default_generation_settings"]["n_ctx"]) * int(props["total_slots"])
