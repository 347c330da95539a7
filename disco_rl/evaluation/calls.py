"""The model calls of one item: counted by role, in turn, and never paid for twice."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from disco_rl.clients.chat import ChatClient, ChatReply, Usage
from disco_rl.core.replies import strip_thinking
from disco_rl.engine.protocols import Message, ModelError
from disco_rl.evaluation.gate import FairGate
from disco_rl.evaluation.journal import Journal
from disco_rl.evaluation.ledger import Ledger


@dataclass(frozen=True)
class ChatModel:
    """A served model: its client, what goes into every request, and tokens added for thinking."""

    client: ChatClient
    sampling: Mapping[str, Any] = field(default_factory=dict)
    thinking_tokens: int = 0


class Calls:
    """Asks the models of one item, by role."""

    def __init__(
        self,
        owner: str,
        models: Mapping[str, ChatModel],
        gate: FairGate | None = None,
        journal: Journal | None = None,
    ):
        self.owner = owner
        self.ledger = Ledger()
        self.gate = gate or FairGate(64)
        self.journal = journal or Journal(None)
        self._models = models

    async def ask(self, role: str, prompt: str | Sequence[Message], *, max_tokens: int) -> str:
        """The reply without its thinking; empty where it only thought. Raises `ModelError`."""
        messages: Sequence[Message] = (
            [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        )
        reply = await self._complete(role, messages, max_tokens)
        return (strip_thinking(reply.text) or "").strip()

    async def _complete(self, role: str, messages: Sequence[Message], max_tokens: int) -> ChatReply:
        model = self._models.get(role)
        if model is None:
            raise ModelError(f"this method needs a {role}; set models.{role}.url and .model")
        limit = max_tokens + model.thinking_tokens
        spent = self.ledger.of(role)
        sent = [dict(message) for message in messages]
        key = self.journal.key(role, model.client.endpoint.model, sent, limit, dict(model.sampling))
        kept = self.journal.get(key)
        if kept is None:
            async with self.gate.turn(self.owner):
                began = time.perf_counter()
                try:
                    reply = await model.client.complete(
                        messages, max_tokens=limit, sampling=model.sampling
                    )
                except ModelError:
                    spent.failures += 1
                    raise
                finally:
                    seconds = time.perf_counter() - began
            self.journal.keep(key, asdict(reply) | {"seconds": seconds})
        else:
            reply = ChatReply(kept["text"], kept["finish"], Usage(**kept["usage"]))
            seconds = kept["seconds"]
        spent.calls += 1
        spent.prompt += reply.usage.prompt
        spent.cached += reply.usage.cached
        spent.output += reply.usage.completion
        spent.cut += reply.finish == "length"
        spent.seconds += seconds
        return reply
