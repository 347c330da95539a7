"""The two small protocols through which the engine reaches models."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from disco_rl.core.shards import Context
from disco_rl.core.trajectory import Generation

Message = Mapping[str, str]
"""A chat message: `role` and `content`."""


class DriverModel(Protocol):
    """A chat model that plans, synthesises and reviews."""

    def count(self, messages: Sequence[Message]) -> int:
        """Prompt tokens of `messages` under the chat template, generation prompt included."""
        ...

    async def generate(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        schema: Mapping[str, Any] | None = None,
    ) -> Generation:
        """One sampled reply. `schema` asks for constrained decoding where the server offers it.

        Raises `ModelError` when the server failed; a bad reply is not an error but a reply.
        """
        ...


@dataclass(frozen=True, slots=True)
class Quote:
    """A Worker's find; `span` in characters of the shard's text, None where it isn't verbatim."""

    text: str
    span: tuple[int, int] | None
    score: float | None = None


@dataclass(frozen=True, slots=True)
class Scan:
    """The reply of a Worker to one instruction on one shard, best quotes first, and its cost.

    Tokens as the server reports them (`cached_tokens` of `prompt_tokens` came from its prefix
    cache), times in seconds: waiting for a turn, and at the server with all tries.
    """

    quotes: tuple[Quote, ...]
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    memo_hit: bool = False
    queued_s: float = 0.0
    served_s: float = 0.0
    retries: int = 0
    hedges: int = 0
    dollars: float = 0.0


class Worker(Protocol):
    """Answers one narrow action on one shard."""

    async def scan(self, instruction: str, context: Context, shard: int) -> Scan:
        """What stands in the shard about the instruction; no quotes where there is nothing.

        Raises `ModelError` when the Worker failed, which is a gap, never a finding.
        """
        ...


class ModelError(RuntimeError):
    """A model or its server failed: timeout, refusal, malformed reply. Says which and why.

    `retryable` says whether the same request may succeed later or elsewhere, `busy` that the
    server is well but has no room, `retry_after` how many seconds it asks to wait, `spent` what
    the call cost all the same.
    """

    retryable: bool = False
    busy: bool = False
    retry_after: float = 0.0
    spent: Scan | None = None


class BadReplyError(ModelError):
    """The model replied, and the reply can't be used: its own doing, unlike a server's failure."""
