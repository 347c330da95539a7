"""From a prompt to a verdict: votes, each from the first endpoint that gives one."""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from disco_rl.engine.prices import Prices
from disco_rl.engine.protocols import ModelError
from disco_rl.engine.tasks import gather
from disco_rl.rewards.judge import JudgeError, Verdict
from disco_rl.rewards.ledger import JudgeLedger
from disco_rl.rewards.verdicts import SCHEMA, parse_verdict

if TYPE_CHECKING:
    from disco_rl.clients.chat import ChatClient

Messages = Sequence[Mapping[str, str]]
_REST_S = 30.0  # an endpoint that failed is asked last for so long


class Panel:
    """`votes` generations a prompt, at most `max_concurrency` of all prompts at once.

    An endpoint fails over to the next, both where it fails and where its reply holds no verdict.
    """

    def __init__(
        self,
        clients: Sequence["ChatClient"],
        ledger: JudgeLedger,
        *,
        votes: int,
        sampling: Mapping[str, Any],
        max_tokens: int,
        constrain: bool,
        max_concurrency: int,
        prices: Prices,
    ):
        self.clients = list(clients)
        self._ledger = ledger
        self._votes, self._sampling = votes, dict(sampling)
        self._max_tokens, self._schema = max_tokens, SCHEMA if constrain else None
        self._max_concurrency = max_concurrency
        self._prices = prices
        self._failed_at = [float("-inf")] * len(self.clients)
        self.meet_loop()

    def meet_loop(self) -> None:
        """To be called on a new event loop: a semaphore belongs to the one that waited on it."""
        self._slots = asyncio.Semaphore(self._max_concurrency)

    async def vote(self, messages: Messages) -> Verdict:
        """The verdict of more than half of the votes; undecided where they split.

        Raises `JudgeError` where so many votes failed that the others can't decide.
        """
        votes = await gather([self._one(messages, seed) for seed in range(self._votes)])
        failures = [vote for vote in votes if isinstance(vote, JudgeError)]
        counts = Counter(vote for vote in votes if isinstance(vote, Verdict))
        for verdict, count in counts.items():
            if 2 * count > len(votes):
                return verdict
        if failures:
            raise failures[0]
        return Verdict.UNDECIDED

    async def close(self) -> None:
        for client in self.clients:
            await client.close()

    async def _one(self, messages: Messages, seed: int) -> Verdict | JudgeError:
        reasons: list[str] = []
        async with self._slots:
            for place in self._order():
                if reasons:
                    self._ledger.charge(failovers=1)
                try:
                    return await self._ask(self.clients[place], messages, seed)
                except JudgeError as error:
                    self._ledger.charge(unparsed=1)
                    reasons.append(f"{self.clients[place].endpoint.name}: {error}")
                except ModelError as error:
                    self._ledger.charge(failed=1)
                    if getattr(error, "retryable", True):  # else it is the request's fault
                        self._failed_at[place] = time.monotonic()
                    reasons.append(str(error))
        return JudgeError("; ".join(reasons))

    async def _ask(self, client: "ChatClient", messages: Messages, seed: int) -> Verdict:
        sampling = self._sampling | ({"seed": seed} if self._votes > 1 else {})
        self._ledger.charge(requests=1)
        reply = await client.complete(
            messages, max_tokens=self._max_tokens, sampling=sampling, schema=self._schema
        )
        usage = reply.usage
        self._ledger.charge(
            prompt_tokens=usage.prompt,
            cached_tokens=usage.cached,
            output_tokens=usage.completion,
            dollars=self._prices.dollars(usage.prompt, usage.cached, usage.completion),
        )
        if reply.finish == "length":
            raise JudgeError(f"its reply was cut off at judge.max_tokens={self._max_tokens}")
        return parse_verdict(reply.text)

    def _order(self) -> list[int]:
        """Endpoints to try in turn: the first one first, unless it failed a moment ago."""
        now = time.monotonic()
        return sorted(range(len(self.clients)), key=lambda i: now - self._failed_at[i] < _REST_S)
