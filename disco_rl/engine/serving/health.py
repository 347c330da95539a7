"""Which endpoints are in service: failures eject one, a probe brings it back."""

import asyncio
import logging
import statistics
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from disco_rl.engine.serving.lane import Lane
from disco_rl.engine.serving.policy import ServingPolicy

_LOG = logging.getLogger(__name__)
_SAMPLES = 8  # replies of a kind before an endpoint's pace is compared


@dataclass
class Pace:
    """Moving averages over replies: seconds of one, and the endpoint's load when it began."""

    seconds: float = 0.0
    load: float = 0.0
    n: int = 0

    def add(self, seconds: float, load: float) -> None:
        self.n += 1
        weight = max(1 / self.n, 0.2)
        self.seconds += (seconds - self.seconds) * weight
        self.load += (load - self.load) * weight


@dataclass(eq=False)
class Member:
    """One endpoint of the pool and what is known of its health."""

    name: str
    lane: Lane
    healthy: Callable[[], Awaitable[bool]]
    up: bool = True
    failures: int = 0  # in a row
    ejections: int = 0  # since it last served well
    paces: tuple[Pace, Pace] = field(default_factory=lambda: (Pace(), Pace()))  # follower, first


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

    def succeeded(self, member: Member, seconds: float, first: bool, load: float) -> None:
        """A reply after `seconds`, which began under such a load of the endpoint."""
        member.failures = 0
        pace = member.paces[first]
        pace.add(seconds, load)
        others = [
            m.paces[first]
            for m in self._members
            if m is not member and m.up and m.paces[first].n >= _SAMPLES
        ]
        if pace.n < _SAMPLES or not others or not member.up:
            return
        usual = statistics.median(other.seconds for other in others)
        load = statistics.median(other.load for other in others)
        # Where a server works on one call after another, so much more is what its load explains.
        explained = max(1.0, pace.load / load)
        if pace.seconds > self._policy.slow_factor * explained * usual:
            why = f"{pace.seconds:.3g} s a reply, the others {usual:.3g} s"
            self._eject(member, why, forget=False)
        else:
            member.ejections = 0

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
        """Back into service on parole: one more failure, or a few slow replies, eject it again."""
        pause = self._policy.probe_s * min(2.0 ** (member.ejections - 1), 12.0)
        try:
            await asyncio.sleep(pause)
            while not await member.healthy():
                pause = min(pause * 2, 12 * self._policy.probe_s)
                await asyncio.sleep(pause)
        finally:  # also where the event loop ends: the next one finds no probe at work
            self._restore(member)

    def _restore(self, member: Member) -> None:
        member.up = True
        member.failures = self._policy.eject_after - 1
        member.paces = (Pace(), Pace())
        _LOG.warning("Worker endpoint %s is back in service", member.name)
        if self._down_since is not None:
            self._outage_s += asyncio.get_running_loop().time() - self._down_since
            self._down_since = None
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)
