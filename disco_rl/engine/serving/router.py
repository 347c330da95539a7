"""Sends each call to the endpoint that read its shard; elsewhere when that one fails or lags."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
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


@dataclass
class _Call:
    shard: str
    tokens: int
    request: Any
    hold_s: float
    left: float  # seconds of the deadline
    receipt: Receipt = field(default_factory=Receipt)
    tried: set[str] = field(default_factory=set)
    began: float | None = None  # when its turn came, in this try


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
            Member(backend.name, Lane(policy.slots, kv_tokens, policy.reads), backend.healthy)
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

    async def ask(
        self, shard: str, tokens: int, request: Q, hold_s: float = 0.0
    ) -> tuple[R, Receipt]:
        """The reply to `request`, which begins with the shard of that digest and token count.

        `hold_s` is for how long the request makes its server keep the shard. Tried elsewhere with
        growing waits while failures may pass; a refusal is final. Raises `ModelError` with the last
        reason once the tries or the deadline are used up.
        """
        policy = self._policy
        call = _Call(shard, tokens, request, hold_s, policy.deadline_s)
        self._under_way += 1
        try:
            for attempt in range(1, policy.max_attempts + 1):
                before = call.receipt.served_s
                try:
                    return await self._placed(call), call.receipt
                except ModelError as failure:
                    if not failure.retryable:
                        raise
                    call.left -= call.receipt.served_s - before
                    wait = backoff(attempt, failure, policy.backoff_s, policy.max_backoff_s)
                    late = wait >= call.left
                    if late or attempt == policy.max_attempts:
                        why = f"deadline_s={policy.deadline_s:g}" if late else "max_attempts"
                        raise ModelError(f"{failure} (try {attempt}, {why} reached)") from failure
                    call.left -= wait
                    call.receipt.retries += 1
                    await asyncio.sleep(wait)
            raise AssertionError("unreachable: max_attempts is at least 1")
        finally:
            self._under_way -= 1

    async def _placed(self, call: _Call) -> R:
        """One try, placed again as often as the endpoint goes out of service before its turn."""
        while True:
            await self._health.some_up()
            member = self._choose(call.shard, call.tried)
            try:
                return await self._hedge(member, call)
            except MovedError:
                continue
            except ModelError:
                call.tried.add(member.name)
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
        ranked = self._ranked(shard)
        up = [m for m in ranked if m.up] or ranked  # all may be ejected while a call is served
        return next((m for m in up if m.name not in tried), up[0])

    async def _hedge(self, member: Member, call: _Call) -> R:
        """One try, and a second one elsewhere once it lags; the first reply counts."""
        if self._policy.hedge_s is None or len(self._members) == 1:
            return await self._serve(member, call)
        tasks: set[asyncio.Task[R]] = {asyncio.ensure_future(self._serve(member, call))}
        hedged = False
        try:
            if await self._lags(next(iter(tasks)), call, self._policy.hedge_s):
                self._health.lagged(member)
                other = self._choose(call.shard, {member.name})
                most = max(1.0, self._policy.hedge_share * self._under_way)
                if other.up and other is not member and self._hedged < most:
                    hedged = True
                    self._hedged += 1
                    call.receipt.hedges += 1
                    again = self._serve(other, replace(call, receipt=Receipt()))
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

    async def _lags(self, task: "asyncio.Task[R]", call: _Call, hedge_s: float) -> bool:
        """Waits until the call is done, or has been at its server for `hedge_s`: then True."""
        left = hedge_s
        while left > 0 and not task.done():
            await asyncio.wait({task}, timeout=left)
            now = asyncio.get_running_loop().time()
            left = hedge_s if call.began is None else call.began + hedge_s - now
        return not task.done()

    async def _serve(self, member: Member, call: _Call) -> R:
        clock = asyncio.get_running_loop().time
        asked, call.began = clock(), None
        shard = call.shard if self._policy.gate else None
        try:
            async with member.lane.turn(shard, call.tokens, call.hold_s) as turn:
                call.began = clock()
                call.receipt.queued_s += call.began - asked
                seconds = min(self._policy.attempt_s, call.left)
                reply: Any = await self._backends[member.name].ask(call.request, seconds)
                turn.read = True
        except ModelError as failure:
            if failure.retryable and not failure.busy:
                self._health.failed(member, str(failure))
            raise
        finally:
            if call.began is not None:
                call.receipt.served_s += clock() - call.began
        self._health.succeeded(member, clock() - call.began)
        return reply
