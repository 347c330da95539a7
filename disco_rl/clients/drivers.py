"""Drivers behind an endpoint, for `ask` and evaluation: chat in text, or exact token ids."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from disco_rl.clients.chat import ChatClient
from disco_rl.clients.http import Endpoint, EndpointError, JsonClient
from disco_rl.core.trajectory import Generation
from disco_rl.engine.protocols import Message


class ChatTokenizer(Protocol):
    """The two methods used of a Hugging Face tokenizer."""

    def apply_chat_template(self, conversation: Any, **kwargs: Any) -> Any: ...

    def decode(self, token_ids: Any, **kwargs: Any) -> str: ...


class EndpointDriver:
    """A `DriverModel` over chat completions: of an endpoint, or of a client like `ChatClient`. Its
    generations carry no token ids.

    Without a tokenizer `count` estimates from the text's length: a third of a token a byte at
    first, then the largest rate the server's own usage has shown. With `length`,
    tokens of a text, it is fixed, so that a resumed evaluation cuts its prompts as before.
    """

    def __init__(
        self,
        endpoint: Endpoint | ChatClient,
        *,
        sampling: Mapping[str, Any] | None = None,
        tokenizer: ChatTokenizer | None = None,
        length: Callable[[str], int] | None = None,
    ):
        self._length = length
        self._client = ChatClient(endpoint) if isinstance(endpoint, Endpoint) else endpoint
        self._sampling = sampling
        self._tokenizer = tokenizer
        self._rate: float | None = None

    def count(self, messages: Sequence[Message]) -> int:
        if self._tokenizer is not None:
            return len(template_ids(self._tokenizer, messages))
        if self._length is not None:
            # As in `_size`, the template's own tokens come on top.
            return sum(self._length(m["content"]) + 6 for m in messages)
        return math.ceil(_size(messages) * (self._rate or 1 / 3))

    async def generate(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        schema: Mapping[str, Any] | None = None,
    ) -> Generation:
        reply = await self._client.complete(
            messages, max_tokens=max_tokens, sampling=self._sampling, schema=schema
        )
        usage = reply.usage
        if usage.prompt:
            self._rate = max(self._rate or 0.0, usage.prompt / _size(messages))
        return Generation(
            text=reply.text,
            finish=reply.finish,
            n_prompt=usage.prompt,
            n_output=usage.completion,
            extra={"cached_tokens": usage.cached},
        )

    async def close(self) -> None:
        await self._client.close()


def template_ids(tokenizer: ChatTokenizer, messages: Sequence[Message]) -> list[int]:
    """Prompt ids of `messages` under the tokenizer's chat template, generation prompt included."""
    return list(
        tokenizer.apply_chat_template(
            [dict(message) for message in messages],
            tokenize=True,
            add_generation_prompt=True,
            return_dict=False,
        )
    )


def _size(messages: Sequence[Message]) -> int:
    # 16 bytes a message stand for the template's own tokens.
    return sum(len(m["role"]) + len(m["content"].encode("utf-8", "replace")) + 16 for m in messages)


class TokenDriver:
    """A `DriverModel` that sends and receives token ids, with the log-probs of what was sampled.

    `server` is `sglang` (`/generate`) or `llamacpp` (`/completion`). Generations hold exactly the
    ids that the server sampled, so that they may be trained on or compared.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        tokenizer: ChatTokenizer,
        *,
        server: str,
        sampling: Mapping[str, Any] | None = None,
    ):
        if server not in _SERVERS:
            raise ValueError(f"server is {server!r}; choose from {list(_SERVERS)}")
        self._tokenizer = tokenizer
        self._path, self._request, self._read, ended = _SERVERS[server]
        self._client = _TokenClient(endpoint, ended)
        self._sampling = dict(sampling or {})

    def count(self, messages: Sequence[Message]) -> int:
        return len(template_ids(self._tokenizer, messages))

    async def generate(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        schema: Mapping[str, Any] | None = None,
    ) -> Generation:
        prompt = template_ids(self._tokenizer, messages)
        point = self._client.endpoint
        body = self._request(prompt, max_tokens, self._sampling, schema)
        reply = await self._client.post(point.root + self._path, body)
        try:
            ids, logprobs, finish = self._read(reply)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            move = "check `server`, and that it reports token ids and log-probs"
            reason = f"unexpected reply ({error!r})"
            raise EndpointError(point.name, 200, reason, move, retryable=False) from error
        return Generation(
            text=self._tokenizer.decode(list(ids), skip_special_tokens=True),
            prompt_ids=tuple(prompt),
            output_ids=ids,
            logprobs=logprobs,
            finish=finish,
            n_prompt=len(prompt),
            n_output=len(ids),
        )

    async def close(self) -> None:
        await self._client.close()


_Read = tuple[tuple[int, ...], tuple[float, ...], str]
_ENDS = {"stop": "stop", "length": "length", "eos": "stop", "word": "stop", "limit": "length"}


class _TokenClient(JsonClient):
    """A reply that was broken off (aborted, or cut by a lost client) is a failed try, as in chat:
    taken for a whole one it would be trained on."""

    def __init__(self, endpoint: Endpoint, ended: Callable[[dict[str, Any]], Any]):
        super().__init__(endpoint)
        self._ended = ended

    async def attempt(self, url: str, body: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        reply = await super().attempt(url, body, seconds)
        try:
            ended = str(self._ended(reply))
        except (KeyError, TypeError):
            return reply  # of another shape, which its reader refuses
        if ended not in _ENDS:
            raise self.broken_off(repr(ended))
        return reply


def _sglang_request(
    prompt: list[int], max_tokens: int, sampling: dict[str, Any], schema: Mapping[str, Any] | None
) -> dict[str, Any]:
    params = {**sampling, "max_new_tokens": max_tokens}
    if schema is not None:
        params["json_schema"] = json.dumps(schema)
    return {"input_ids": prompt, "sampling_params": params, "return_logprob": True}


def _sglang_read(reply: dict[str, Any]) -> _Read:
    meta = reply["meta_info"]
    pairs = meta["output_token_logprobs"]  # [log-prob, id, text or null] each
    finish = _ENDS[meta["finish_reason"]["type"]]
    return tuple(int(p[1]) for p in pairs), tuple(float(p[0]) for p in pairs), finish


def _llamacpp_request(
    prompt: list[int], max_tokens: int, sampling: dict[str, Any], schema: Mapping[str, Any] | None
) -> dict[str, Any]:
    # Its own defaults (top-k 40, min-p 0.05, ...) would change what is sampled from.
    exact = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    body = {**exact, **sampling, "prompt": prompt, "n_predict": max_tokens, "n_probs": 1}
    body |= {"return_tokens": True, "cache_prompt": True}
    if schema is not None:
        body["json_schema"] = dict(schema)
    return body


def _llamacpp_read(reply: dict[str, Any]) -> _Read:
    ids = tuple(int(token) for token in reply["tokens"])
    steps = reply["completion_probabilities"]
    # The server lists the stop token among the steps or not, by version: the ids decide.
    logprobs = tuple(float(step["logprob"]) for step in steps[: len(ids)])
    if len(logprobs) != len(ids) or any(s["id"] != i for s, i in zip(steps, ids, strict=False)):
        raise ValueError(f"{len(ids)} tokens but {len(steps)} log-probs, or of other tokens")
    return ids, logprobs, _ENDS[reply["stop_type"]]


_SERVERS = {
    "sglang": (
        "/generate",
        _sglang_request,
        _sglang_read,
        lambda reply: reply["meta_info"]["finish_reason"]["type"],
    ),
    "llamacpp": (
        "/completion",
        _llamacpp_request,
        _llamacpp_read,
        lambda reply: reply["stop_type"],
    ),
}
