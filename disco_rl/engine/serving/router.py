"""Sends each call to the endpoint that read its shard; elsewhere when that one fails or lags."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Generic, Protocol, TypeVar

from disco_rl.engine.protocols import ModelError
from disco_rl.engine.serving.health import Health, Member
from disco_rl.engine.serving.lane import Lane, MovedError
from disco_rl.engine.serving.policy import ServingPolicy, backoff

Q = TypeVar("Q", contravariant=True)
R = TypeVar("R", covariant=True)


class Backend(Protocol[Q, R]):
    """One model server."""

    @property
    def name(self) -> str: ...

    async def ask(self, request: Q, seconds: float) -> R:
        """One try of at most so many seconds. Raises `ModelError`, which says if it's final."""
        ...

    async def healthy(self) -> bool:
        """Whether it would serve now. Never raises."""
        ...

    async def close(self) -> None: ...


@dataclass
class Receipt:
    """What a call took: seconds waiting for its turn and being served, and how many tries."""

    queued_s: float = 0.0
    served_s: float = 0.0
    retries: int = 0
    hedges: int = 0


class Router(Generic[Q, R]):
    """Rendezvous hashing of shards over endpoints, with retries, hedges and health."""

    def __init__(
        self,
        backends: Sequence[Backend[Q, R]],
        policy: ServingPolicy = ServingPolicy(),
        kv_tokens: int | None = None,
    ):
        """`kv_tokens` is what one endpoint's cache holds (None: not known, nothing is evicted)."""
        if len({backend.name for backend in backends}) != len(backends) or not backends:
            raise ValueError("worker.url must name at least one endpoint, each once")
        self._policy = policy
        self._backends = {backend.name: backend for backend in backends}
        self._members = [
            Member(backend.name, Lane(policy.slots, kv_tokens), backend.healthy)
            for backend in backends
        ]
        self._health = Health(self._members, policy)
        self._ranked = lru_cache(maxsize=65_536)(self._rank)  # a hash an endpoint, once a shard
        self._under_way = self._hedged = self._asked = 0

    def outage(self) -> float:
        """Seconds so far in which every endpoint was down."""
        return self._health.outage()

    def set_kv_tokens(self, tokens: int | None) -> None:
        for member in self._members:
            member.lane.kv_tokens = tokens

    async def close(self) -> None:
        await self._health.close()
        for backend in self._backends.values():
            await backend.close()

    async def ask(self, shard: str, tokens: int, request: Q) -> tuple[R, Receipt]:
        """The reply to `request`, which begins with the shard of that digest and token count.

        Tried elsewhere with growing waits while failures may pass; a refusal is final. Raises
        `ModelError` with the last reason once the tries or the deadline are used up.
        """
        policy, receipt = self._policy, Receipt()
        left, tried = policy.deadline_s, set[str]()
        self._under_way += 1
        try:
            for attempt in range(1, policy.max_attempts + 1):
                before = receipt.served_s
                try:
                    return await self._placed(shard, tokens, request, receipt, left, tried), receipt
                except ModelError as failure:
                    left -= receipt.served_s - before
                    wait = backoff(attempt, failure, policy.backoff_s, policy.max_backoff_s)
                    if not failure.retryable:
                        raise
                    late = wait >= left
                    if late or attempt == policy.max_attempts:
                        why = f"deadline_s={policy.deadline_s:g}" if late else "max_attempts"
                        raise ModelError(f"{failure} (try {attempt}, {why} reached)") from failure
                    left -= wait
                    receipt.retries += 1
                    await asyncio.sleep(wait)
            raise AssertionError("unreachable: max_attempts is at least 1")
        finally:
            self._under_way -= 1

    async def _placed(
        self, shard: str, tokens: int, request: Q, receipt: Receipt, left: float, tried: set[str]
    ) -> R:
        """One try, placed again as often as the endpoint goes out of service before its turn."""
        while True:
            await self._health.some_up()
            member = self._choose(shard, tried)
            try:
                return await self._hedge(member, shard, tokens, request, receipt, left)
            except MovedError:
                continue
            except ModelError:
                tried.add(member.name)
                raise

    def _rank(self, shard: str) -> list[Member]:
        """The endpoints by their weight for the shard; a lost one moves only its own shards."""
        return sorted(
            self._members,
            key=lambda m: blake2b(f"{m.name}\0{shard}".encode(), digest_size=8).digest(),
        )

    def _choose(self, shard: str, tried: set[str]) -> Member:
        if not self._policy.affinity:
            self._asked += 1
            shard = str(self._asked)
        up = [m for m in self._ranked(shard) if m.up]
        return next((m for m in up if m.name not in tried), up[0])

    async def _hedge(
        self, member: Member, shard: str, tokens: int, request: Q, receipt: Receipt, left: float
    ) -> R:
        first = _Try()
        if self._policy.hedge_s is None or len(self._members) == 1:
            return await self._serve(member, shard, tokens, request, receipt, left, first)
        tasks: set[asyncio.Task[R]] = {
            asyncio.ensure_future(self._serve(member, shard, tokens, request, receipt, left, first))
        }
        hedged = False
        try:
            await self._linger(next(iter(tasks)), first)
            other = self._choose(shard, {member.name})
            late = not any(task.done() for task in tasks)
            if late:
                self._health.lagged(member)
            if late and other is not member and self._hedged < self._may_hedge():
                receipt.hedges += 1
                self._hedged += 1
                hedged = True
                again = self._serve(other, shard, tokens, request, Receipt(), left, _Try())
                tasks.add(asyncio.ensure_future(again))
            failure: BaseException | None = None
            while tasks:
                done, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    failure = task.exception()
                    if failure is None:
                        return task.result()
            assert failure is not None
            raise failure
        finally:
            self._hedged -= hedged
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _may_hedge(self) -> float:
        return max(1.0, self._policy.hedge_share * self._under_way)

    async def _linger(self, task: "asyncio.Task[R]", first: "_Try") -> None:
        """Until the call is done, or has been at its server for `hedge_s`."""
        hedge_s = self._policy.hedge_s or 0.0
        left = hedge_s
        while left > 0 and not task.done():
            await asyncio.wait({task}, timeout=left)
            now = asyncio.get_running_loop().time()
            left = hedge_s if first.began is None else first.began + hedge_s - now

    async def _serve(
        self,
        member: Member,
        shard: str,
        tokens: int,
        request: Q,
        receipt: Receipt,
        left: float,
        mark: "_Try",
    ) -> R:
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            async with member.lane.turn(shard if self._policy.gate else None, tokens) as turn:
                mark.began = clock()
                receipt.queued_s += mark.began - began
                seconds = min(self._policy.attempt_s, left)
                reply: Any = await self._backends[member.name].ask(request, seconds)
                turn.read = True
        except ModelError as failure:
            if failure.retryable and not failure.busy:
                self._health.failed(member, str(failure))
            raise
        finally:
            if mark.began is not None:
                receipt.served_s += clock() - mark.began
        self._health.succeeded(member, clock() - mark.began)
        return reply


@dataclass
class _Try:
    began: float | None = None  # when its turn came
