"""Which endpoints are in service: failures eject one, a probe brings it back."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from disco_rl.engine.serving.lane import Lane
from disco_rl.engine.serving.policy import ServingPolicy

_LOG = logging.getLogger(__name__)
_LAGS = 8  # calls in a row


@dataclass(eq=False)
class Member:
    """One endpoint of the pool and what is known of its health."""

    name: str
    lane: Lane
    healthy: Callable[[], Awaitable[bool]]
    up: bool = True
    failures: int = 0  # in a row
    ejections: int = 0  # since it last served well
    lags: int = 0  # calls in a row that took longer than `hedge_s`


class Health:
    """Ejects endpoints that fail or lag, probes them, and keeps the time when none is left."""

    def __init__(self, members: Sequence[Member], policy: ServingPolicy):
        self._members = members
        self._policy = policy
        self._probes: set[asyncio.Task[None]] = set()
        self._waiting: list[asyncio.Future[None]] = []
        self._down_since: float | None = None
        self._outage_s = 0.0

    def outage(self) -> float:
        """Seconds so far in which every endpoint was down."""
        if self._down_since is None:
            return self._outage_s
        return self._outage_s + asyncio.get_running_loop().time() - self._down_since

    async def some_up(self) -> None:
        """Returns once an endpoint is in service."""
        while self._down_since is not None:
            future = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            await future

    def succeeded(self, member: Member, seconds: float) -> None:
        member.failures = member.ejections = 0
        if self._policy.hedge_s is None or seconds <= self._policy.hedge_s:
            member.lags = 0

    def lagged(self, member: Member) -> None:
        """A call has been there for longer than `hedge_s`. Where others don't lag, that's the
        endpoint; where all do, it's the load, and each keeps what it has read."""
        member.lags += 1
        others = [m for m in self._members if m is not member and m.up]
        if member.up and member.lags >= _LAGS and any(m.lags == 0 for m in others):
            self._eject(member, f"{_LAGS} calls in a row took over hedge_s", forget=False)

    def failed(self, member: Member, why: str) -> None:
        """A failure of the endpoint, not one of the request's own."""
        member.failures += 1
        if member.up and member.failures >= self._policy.eject_after:
            self._eject(member, f"{member.failures} failures in a row, the last: {why}", True)

    async def close(self) -> None:
        probes = list(self._probes)
        for probe in probes:
            probe.cancel()
        await asyncio.gather(*probes, return_exceptions=True)

    def _eject(self, member: Member, why: str, forget: bool) -> None:
        member.up = False
        member.ejections += 1
        member.lane.clear(forget=forget)
        _LOG.warning("Worker endpoint %s is out of service: %s", member.name, why)
        if not any(m.up for m in self._members):
            self._down_since = asyncio.get_running_loop().time()
            _LOG.error(
                "every Worker endpoint is down (%s): calls wait until one returns",
                ", ".join(m.name for m in self._members),
            )
        probe = asyncio.get_running_loop().create_task(self._return(member))
        self._probes.add(probe)
        probe.add_done_callback(self._probes.discard)

    async def _return(self, member: Member) -> None:
        """Back into service on parole: one more failure, or a few lags, eject it again."""
        pause = self._policy.probe_s * 2 ** min(member.ejections - 1, 3)
        try:
            await asyncio.sleep(pause)
            while not await member.healthy():
                pause = min(pause * 2, 12 * self._policy.probe_s)
                await asyncio.sleep(pause)
            _LOG.warning("Worker endpoint %s is back in service", member.name)
        finally:  # also where the event loop ends: the next one finds no probe at work
            self._restore(member)

    def _restore(self, member: Member) -> None:
        member.up = True
        member.failures = self._policy.eject_after - 1
        member.lags = _LAGS // 2
        if self._down_since is not None:
            self._outage_s += asyncio.get_running_loop().time() - self._down_since
            self._down_since = None
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)
