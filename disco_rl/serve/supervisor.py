"""Runs servers until told to stop: waits for health, restarts what dies, leaves nothing behind."""

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from disco_rl.serve.commands import Server

_LOG = logging.getLogger(__name__)
_POLL_S = 0.5
_GRACE_S = 15.0


class ServeError(ValueError):
    """A server that won't run; the message names its log."""


@dataclass(eq=False)
class _Child:
    server: Server
    log: Path
    process: "subprocess.Popen[bytes] | None" = None
    restarts: int = 0

    def start(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.server.command,
                env={**os.environ, **self.server.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # its own children are stopped with it
                preexec_fn=_die_with_parent,
            )

    def ended(self) -> int | None:
        assert self.process is not None
        return self.process.poll()

    def signal(self, number: int) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)

    def error(self, what: str) -> ServeError:
        tail = self.log.read_text(errors="replace").splitlines()[-5:]
        return ServeError(f"{self.server.name} {what}; {self.log} ends: " + " | ".join(tail))


@dataclass
class Supervisor:
    """`startup_s`: seconds until all are healthy; `restarts`: of one server, at most."""

    servers: Sequence[Server]
    logs: Path
    startup_s: float
    restarts: int
    _children: list[_Child] = field(default_factory=list, init=False)

    async def run(self, on_ready: Callable[[], Awaitable[object]], stop: asyncio.Event) -> None:
        """Until `stop` is set. Raises `ServeError` for a server that doesn't start, or once every
        one has died too often; one that did alone is given up. All are stopped first."""
        self._children = [_Child(s, self.logs / f"{s.name}.log") for s in self.servers]
        stopped = asyncio.ensure_future(stop.wait())
        work = asyncio.ensure_future(self._watch(on_ready))
        try:
            await asyncio.wait({stopped, work}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                await work
        finally:
            for task in (stopped, work):
                task.cancel()
            await asyncio.gather(stopped, work, return_exceptions=True)
            await self._stop()

    async def _watch(self, on_ready: Callable[[], Awaitable[object]]) -> None:
        for child in self._children:
            child.start()
        await asyncio.gather(*(self._healthy(child) for child in self._children))
        await on_ready()
        while True:
            await asyncio.sleep(_POLL_S)
            for child in list(self._children):
                code = child.ended()
                if code is None:
                    continue
                if child.restarts >= self.restarts:
                    given_up = child.error(f"ended with {code} after {child.restarts} restarts")
                    child.signal(signal.SIGKILL)
                    self._children.remove(child)
                    if not self._children:
                        raise given_up
                    _LOG.error("%s; going on with %d others", given_up, len(self._children))
                    continue
                child.restarts += 1
                _LOG.warning("%s ended with %s: starting it again", child.server.name, code)
                child.signal(signal.SIGKILL)  # what it may have left behind
                child.start()

    async def _healthy(self, child: _Child) -> None:
        url = child.server.local.removesuffix("/v1") + "/health"
        end = asyncio.get_running_loop().time() + self.startup_s
        timeout = aiohttp.ClientTimeout(total=5.0)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                if (code := child.ended()) is not None:
                    raise child.error(f"ended with {code} before it served")
                with contextlib.suppress(aiohttp.ClientError, asyncio.TimeoutError):
                    async with session.get(url) as reply:
                        if reply.status == 200:
                            return
                if asyncio.get_running_loop().time() > end:
                    raise child.error(f"doesn't serve after serve.startup_s={self.startup_s:g}")
                await asyncio.sleep(_POLL_S)

    async def _stop(self) -> None:
        started = [child for child in self._children if child.process is not None]
        for child in started:
            child.signal(signal.SIGTERM)
        end = asyncio.get_running_loop().time() + _GRACE_S
        while any(child.ended() is None for child in started):
            if asyncio.get_running_loop().time() > end:
                break
            await asyncio.sleep(0.05)
        for child in started:
            child.signal(signal.SIGKILL)
            assert child.process is not None
            child.process.wait()


def _die_with_parent() -> None:
    """In the child, before its command: the kernel ends it should this process be killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
