"""The Worker pool: fans a narrow action out over shards, bounded, and turns failures into gaps."""

import asyncio
import time

from disco_rl.core.evidence import Finding, NarrowOutput, WorkerFailure
from disco_rl.core.plan import NarrowAction
from disco_rl.core.shards import Context
from disco_rl.core.trajectory import WorkerUsage
from disco_rl.engine.protocols import ModelError, Scan, Worker
from disco_rl.engine.tasks import gather


class WorkerPool:
    """Scans shards with one Worker, at most `max_concurrency` at once over all its callers.

    At most `max_findings` findings of a narrow action are kept: the best by score where the
    Worker scores, else the first in shard order. What is cut is counted.
    """

    def __init__(self, worker: Worker, *, max_concurrency: int = 64, max_findings: int = 16):
        if max_concurrency < 1 or max_findings < 1:
            raise ValueError("worker.max_concurrency and worker.max_findings must be at least 1")
        self._worker = worker
        self._slots = asyncio.Semaphore(max_concurrency)
        self._max_findings = max_findings

    async def run(self, action: NarrowAction, context: Context, usage: WorkerUsage) -> NarrowOutput:
        """Findings in shard order; a shard whose Worker failed is a `WorkerFailure`."""
        shards = range(len(context.shards)) if action.shards is None else sorted(action.shards)
        replies = await gather([self._scan(action, context, s, usage) for s in shards])
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
        return NarrowOutput(
            action.id, tuple(kept), tuple(failures), len(shards), len(findings) - len(kept)
        )

    def _best(self, findings: list[Finding]) -> list[Finding]:
        order = sorted(
            range(len(findings)),
            key=lambda i: -score if (score := findings[i].score) is not None else 0.0,
        )
        return [findings[i] for i in sorted(order[: self._max_findings])]

    async def _scan(
        self, action: NarrowAction, context: Context, shard: int, usage: WorkerUsage
    ) -> Scan | ModelError:
        async with self._slots:
            began = time.perf_counter()
            usage.calls += 1
            try:
                scan = await self._worker.scan(action.instruction, context, shard)
            except ModelError as error:
                usage.failures += 1
                return error
            finally:
                usage.seconds += time.perf_counter() - began
        usage.memo_hits += scan.memo_hit
        usage.prompt_tokens += scan.prompt_tokens
        usage.cached_tokens += scan.cached_tokens
        usage.output_tokens += scan.output_tokens
        return scan
