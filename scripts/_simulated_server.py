"""A model server on the event loop's clock: prefill at a rate, decode, an evicting prefix cache."""

import asyncio
from dataclasses import dataclass

from disco_rl.engine.protocols import ModelError

_EVER = 1e6  # seconds: no limit worth a timer


@dataclass(frozen=True)
class Machine:
    """Tokens and seconds of one endpoint.

    prefill: prompt tokens computed a second, one request after another
    decode: tokens a second of one request, up to `batch` requests together; above, they share
    kv_tokens: what the prefix cache holds; what need be kept for the shortest is evicted first,
        which is the least recently used where nothing is held
    host_tokens, load: a second cache in host memory (0: none), read at so many tokens a second
    head_tokens: that all prompts begin with (the chat template's), computed once
    """

    prefill: float = 20_000.0
    decode: float = 80.0
    batch: int = 64
    kv_tokens: int = 200_000
    host_tokens: int = 0
    load: float = 200_000.0
    head_tokens: int = 0


@dataclass(frozen=True)
class Call:
    """A prompt of a shard and words of its own; `prefix` None: nothing of it can be shared.

    `hold_s`: its shard is to be kept for so long.
    """

    prefix: str | None
    shard_tokens: int
    own_tokens: int
    output_tokens: int
    hold_s: float = 0.0


@dataclass(frozen=True)
class Used:
    prompt: int
    cached: int
    completion: int


class SimulatedServer:
    """A `Backend` of the router. `slowdown` and `down` may be changed while it runs."""

    def __init__(self, name: str, machine: Machine):
        self.name = name
        self.machine = machine
        self.slowdown, self.down = 1.0, False
        self.computed = self.cached = self.calls = 0
        self.prefill_s = 0.0
        self._prefill = asyncio.Lock()
        self._running = 0
        self._warm = False
        self._device = _Cache(machine.kv_tokens)
        self._host = _Cache(machine.host_tokens)

    async def ask(self, request: Call, seconds: float) -> Used:
        if seconds > _EVER:
            return await self._serve(request)
        try:
            return await asyncio.wait_for(self._serve(request), seconds)
        except asyncio.TimeoutError:
            raise self._failure("no reply in time") from None

    async def healthy(self) -> bool:
        return not self.down

    async def close(self) -> None:
        pass

    async def _serve(self, request: Call) -> Used:
        self._check()
        async with self._prefill:
            cached, spent = self._look_up(request)
            computed = request.shard_tokens + request.own_tokens - cached
            spent = (spent + computed / self.machine.prefill) * self.slowdown
            self.prefill_s += spent
            await asyncio.sleep(spent)
            self._warm = True
            if request.prefix is not None:
                until = asyncio.get_running_loop().time() + request.hold_s
                self._device.keep(request.prefix, request.shard_tokens, until)
                self._host.keep(request.prefix, request.shard_tokens, until)
        self._check()
        self._running += 1
        try:
            crowd = max(1.0, self._running / self.machine.batch)
            await asyncio.sleep(request.output_tokens / self.machine.decode * crowd * self.slowdown)
        finally:
            self._running -= 1
        self._check()
        self.calls += 1
        self.computed += computed
        self.cached += cached
        return Used(computed + cached, cached, request.output_tokens)

    def _look_up(self, request: Call) -> tuple[int, float]:
        """Cached tokens of the prompt, and seconds to bring them in."""
        if request.prefix in self._device.items:
            return request.shard_tokens, 0.0
        if request.prefix in self._host.items:
            return request.shard_tokens, request.shard_tokens / self.machine.load
        return self.machine.head_tokens * self._warm, 0.0

    def _check(self) -> None:
        if self.down:
            raise self._failure("connection refused")

    def _failure(self, why: str) -> ModelError:
        error = ModelError(f"{self.name}: {why}")
        error.retryable = True
        return error


class _Cache:
    """Sizes by key; evicts what is over `capacity`, what need be kept for the shortest first."""

    def __init__(self, capacity: int):
        self.items: dict[str, tuple[int, float]] = {}
        self._capacity = capacity
        self._total = 0

    def keep(self, key: str, size: int, until: float) -> None:
        old, held = self.items.pop(key, (0, until))
        self._total += size - old
        self.items[key] = size, max(until, held)
        while self._total > self._capacity and self.items:
            shortest = min(self.items, key=lambda each: self.items[each][1])
            self._total -= self.items.pop(shortest)[0]
