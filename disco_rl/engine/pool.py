"""The Worker pool: fans a narrow action out over shards, bounded, and turns failures into gaps."""

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext

from disco_rl.core.evidence import Finding, NarrowOutput, WorkerFailure
from disco_rl.core.plan import NarrowAction
from disco_rl.core.shards import Context
from disco_rl.core.trajectory import WorkerUsage
from disco_rl.engine.faults import Faults
from disco_rl.engine.protocols import BadReplyError, ModelError, Scan, Worker
from disco_rl.engine.serving.admission import Admission
from disco_rl.engine.tasks import gather


class WorkerPool:
    """Scans shards with one Worker, at most `max_concurrency` at once over all its callers.

    At most `max_findings` findings of a narrow action are kept: the best by score where the
    Worker scores, else the first in shard order. What is cut is counted. Contexts are admitted
    while their shards fit `overcommit` times the KV cache of the Worker's servers, of which this
    process has one part in `processes` (0: all are admitted; a Worker without servers has no
    cache to fill). `faults` are a study's.
    """

    def __init__(
        self,
        worker: Worker,
        *,
        max_concurrency: int = 64,
        max_findings: int = 16,
        overcommit: float = 0.0,
        processes: int = 1,
        faults: Faults = Faults(),
    ):
        if max_concurrency < 1 or max_findings < 1:
            raise ValueError("worker.max_concurrency and worker.max_findings must be at least 1")
        self._worker = worker
        self._slots = asyncio.Semaphore(max_concurrency)
        self._max_findings = max_findings
        self._share = overcommit / processes
        self._admission: Admission | None = None
        self._sizing = asyncio.Lock()
        self._faults = faults

    @asynccontextmanager
    async def admit(self, context: Context) -> AsyncIterator[None]:
        """Waits until the context's shards fit the servers' caches, and holds their place; without
        `overcommit` nobody waits, and the Worker may have some contexts' shards kept (`hold`).

        The trajectories of a question enter together: enter before the episode, since this may
        take longer than the episode may.
        """
        async with self._sizing:
            if self._admission is None:
                # Asked with admission off too: the Worker then knows what is still read.
                capacity = getattr(self._worker, "kv_tokens", None)
                tokens = (await capacity() if capacity else None) or 0
                self._admission = Admission(math.ceil(tokens * self._share) or None)
        shards = sum(shard.n_tokens for shard in context.shards)
        hold = getattr(self._worker, "hold", None)  # as above, only some Workers have one
        async with self._admission.admit(context.id, shards):
            with hold(context) if hold else nullcontext():
                yield

    def outage(self) -> float:
        """Seconds so far in which no Worker could be reached, and calls waited."""
        down = getattr(self._worker, "outage", None)  # only a Worker behind endpoints has one
        return down() if down else 0.0

    async def close(self) -> None:
        close = getattr(self._worker, "close", None)
        if close:
            await close()

    async def run(
        self, action: NarrowAction, context: Context, usage: WorkerUsage, name: str = ""
    ) -> NarrowOutput:
        """Findings in shard order; a shard whose Worker failed is a `WorkerFailure`.

        `name` tells trajectory and stage apart, so that a study's faults repeat.
        """
        shards = range(len(context.shards)) if action.shards is None else sorted(action.shards)
        name = f"{name}/{action.id}"
        replies = await gather([self._scan(action, context, s, usage, name) for s in shards])
        findings: list[Finding] = []
        failures: list[WorkerFailure] = []
        for shard, reply in zip(shards, replies, strict=True):
            if isinstance(reply, ModelError):
                failures.append(WorkerFailure(action.id, shard, str(reply)))
            else:
                findings += [
                    Finding(action.id, shard, q.text, q.span, q.score) for q in reply.quotes
                ]
        kept = self._best(findings)
        output = NarrowOutput(
            action.id, tuple(kept), tuple(failures), len(shards), len(findings) - len(kept)
        )
        return self._faults.drop(output, name)

    def _best(self, findings: list[Finding]) -> list[Finding]:
        order = sorted(
            range(len(findings)),
            key=lambda i: -score if (score := findings[i].score) is not None else 0.0,
        )
        return [findings[i] for i in sorted(order[: self._max_findings])]

    async def _scan(
        self, action: NarrowAction, context: Context, shard: int, usage: WorkerUsage, name: str
    ) -> Scan | ModelError:
        try:
            return await self._scan_in_turn(action, context, shard, usage, name)
        except asyncio.CancelledError:
            usage.cancelled += 1
            raise

    async def _scan_in_turn(
        self, action: NarrowAction, context: Context, shard: int, usage: WorkerUsage, name: str
    ) -> Scan | ModelError:
        async with self._slots:
            began = time.perf_counter()
            usage.calls += 1
            usage.shards[shard] = context.shards[shard].n_tokens
            try:
                await self._faults.strike(f"{name}/{shard}")
                scan = await self._worker.scan(action.instruction, context, shard)
            except ModelError as error:
                usage.failures += 1
                usage.lost += not isinstance(error, BadReplyError)
                if error.spent is not None:
                    _book(usage, error.spent)
                return error
            finally:
                usage.seconds += time.perf_counter() - began
        _book(usage, scan)
        return scan


def _book(usage: WorkerUsage, scan: Scan) -> None:
    usage.memo_hits += scan.memo_hit
    usage.prompt_tokens += scan.prompt_tokens
    usage.cached_tokens += scan.cached_tokens
    usage.output_tokens += scan.output_tokens
    usage.queued_s += scan.queued_s
    usage.served_s += scan.served_s
    usage.retries += scan.retries
    usage.hedges += scan.hedges
    usage.dollars += scan.dollars
