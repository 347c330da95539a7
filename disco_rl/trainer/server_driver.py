"""The Driver during a rollout: verl's server manager, token ids in and token ids out.

Nothing that was sampled is ever encoded again: the ids and log-probabilities that the server
returns are the ones that are trained on, and `digest` proves it at the other end.
"""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from disco_rl.core.trajectory import Generation
from disco_rl.engine.protocols import Message, ModelError

_REMEMBERED = 8  # prompts whose ids are kept between `count` and `generate`


class TokenServer(Protocol):
    """verl's `LLMServerClient`, as far as it is used here."""

    async def generate(
        self, *, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any]
    ) -> Any: ...


class ChatEncoder:
    """Prompt ids of chat messages, by the tokenizer's own template.

    One per process. The lock is for the tokenizer: a fast tokenizer used from two threads raises
    "Already borrowed".
    """

    def __init__(self, tokenizer: Any, template_kwargs: Mapping[str, Any] | None = None):
        self._tokenizer = tokenizer
        self._kwargs = dict(template_kwargs or {})
        self._lock = threading.Lock()
        self._stops = _stop_ids(tokenizer)

    def encode(self, messages: Sequence[Message]) -> list[int]:
        with self._lock:
            ids = self._tokenizer.apply_chat_template(
                [dict(message) for message in messages],
                tokenize=True,
                add_generation_prompt=True,
                return_dict=False,
                **self._kwargs,
            )
        return [int(token) for token in ids]

    def text(self, output_ids: Sequence[int]) -> str:
        """The reply without its stop token; other special tokens (thinking tags) stay in it."""
        kept = list(output_ids)
        while kept and kept[-1] in self._stops:
            kept.pop()
        with self._lock:
            return self._tokenizer.decode(kept, skip_special_tokens=False)

    def stopped(self, output_ids: Sequence[int]) -> bool:
        return bool(output_ids) and output_ids[-1] in self._stops


class ServerDriver:
    """A `DriverModel` for one trajectory over verl's server manager.

    `window` bounds prompt and reply of a call together, in tokens. Constrained decoding is not
    used: it would sample from another distribution than the one that is trained.
    """

    def __init__(
        self,
        server: TokenServer,
        encoder: ChatEncoder,
        sampling_params: Mapping[str, Any],
        *,
        window: int,
        request_id: str,
    ):
        self._server = server
        self._encoder = encoder
        self._sampling = dict(sampling_params)
        self._window = window
        self._request_id = request_id
        self._ids: OrderedDict[tuple[tuple[str, str], ...], list[int]] = OrderedDict()

    def count(self, messages: Sequence[Message]) -> int:
        return len(self._encode(messages))

    async def generate(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        schema: Mapping[str, Any] | None = None,
    ) -> Generation:
        prompt_ids = self._encode(messages)
        cap = min(max_tokens, self._window - len(prompt_ids) - 1)
        if cap < 1:
            raise ModelError(
                f"a prompt of {len(prompt_ids)} tokens leaves no room in driver.window="
                f"{self._window}; cut its evidence before the call"
            )
        try:
            output = await self._server.generate(
                request_id=self._request_id,
                prompt_ids=list(prompt_ids),
                sampling_params={**self._sampling, "max_tokens": cap},
            )
        except Exception as error:  # Ray wraps whatever the server raised
            raise ModelError(f"the rollout server failed: {_brief(error)}") from error
        return self._read(prompt_ids, output, cap)

    def _encode(self, messages: Sequence[Message]) -> list[int]:
        key = tuple((message["role"], message["content"]) for message in messages)
        if key in self._ids:
            self._ids.move_to_end(key)
        else:
            self._ids[key] = self._encoder.encode(messages)
            if len(self._ids) > _REMEMBERED:
                self._ids.popitem(last=False)
        return self._ids[key]

    def _read(self, prompt_ids: list[int], output: Any, cap: int) -> Generation:
        ids = [int(token) for token in output.token_ids]
        if output.stop_reason == "aborted":
            raise ModelError("the rollout server aborted the request")
        if not ids:
            raise ModelError("the rollout server returned no tokens")
        if output.log_probs is None or len(output.log_probs) != len(ids):
            given = "none" if output.log_probs is None else str(len(output.log_probs))
            raise ModelError(
                f"{len(ids)} tokens came with {given} log-probabilities; set "
                "actor_rollout_ref.rollout.calculate_log_probs=true"
            )
        logprobs = [float(value) for value in output.log_probs]
        cut = len(ids) >= cap and not self._encoder.stopped(ids)
        return Generation(
            text=self._encoder.text(ids),
            prompt_ids=tuple(prompt_ids),
            output_ids=tuple(ids),
            logprobs=tuple(logprobs),
            finish="length" if cut else "stop",
            n_prompt=len(prompt_ids),
            n_output=len(ids),
            extra={
                "server": dict(output.extra_fields),
                "digest": digest(prompt_ids, ids, logprobs),
            },
        )


def digest(prompt_ids: ArrayLike, output_ids: ArrayLike, logprobs: ArrayLike) -> str:
    """A fingerprint of what was sampled: ids exactly, log-probabilities as float32."""
    state = hashlib.blake2b(digest_size=16)
    for ids in (prompt_ids, output_ids):
        array = np.asarray(ids, dtype=np.int64)
        state.update(len(array).to_bytes(8, "little"))
        state.update(array.tobytes())
    state.update(np.asarray(logprobs, dtype=np.float32).tobytes())
    return state.hexdigest()


def _stop_ids(tokenizer: Any) -> frozenset[int]:
    ids = tokenizer.eos_token_id
    return frozenset(ids if isinstance(ids, (list, tuple)) else [ids]) - {None}


def _brief(error: BaseException) -> str:
    """The last line of an error; Ray's begin with a traceback."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[-1] if lines else ''}"[:500]
