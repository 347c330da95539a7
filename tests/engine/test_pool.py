"""The Worker pool: bounded, failures as gaps, findings in shard order, cuts counted."""

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disco_rl.core.evidence import Finding, WorkerFailure
from disco_rl.core.plan import NarrowAction
from disco_rl.core.shards import TextContext
from disco_rl.core.trajectory import WorkerUsage
from disco_rl.engine.pool import WorkerPool
from disco_rl.engine.protocols import ModelError, Quote, Scan
from tests.engine.scripted import CONTEXT
from tests.fakes import SubstringWorker, count_words


class TableWorker:
    """Replies by shard from a table of scans or exceptions, later shards first."""

    def __init__(self, table: dict[int, Scan | Exception]):
        self.table = table

    async def scan(self, instruction, context, shard) -> Scan:
        await asyncio.sleep(0.001 * (len(self.table) - shard))
        reply = self.table[shard]
        if isinstance(reply, Exception):
            raise reply
        return reply


def quotes(*scores: float | None) -> Scan:
    return Scan(tuple(Quote(f"q{i}", None, score) for i, score in enumerate(scores)))


def run(pool: WorkerPool, action: NarrowAction, usage: WorkerUsage | None = None):
    return asyncio.run(pool.run(action, CONTEXT, usage or WorkerUsage()))


def test_findings_stand_in_shard_order_with_their_places():
    output = run(WorkerPool(SubstringWorker()), NarrowAction("n1", "Find Ada."))
    assert [f.shard for f in output.findings] == [0, 1, 3]
    assert output.findings[0] == Finding("n1", 0, "Ada was born in 1815.", (0, 21), 1.0) or (
        output.findings[0].quote.startswith("Ada was born in 1815")
    )
    for finding in output.findings:
        start, end = finding.span
        assert CONTEXT.read(finding.shard)[start:end] == finding.quote
    assert (output.n_shards, output.n_cut, output.failures) == (4, 0, ())


def test_only_the_named_shards_are_asked_and_found_in_shard_order():
    worker = SubstringWorker()
    output = run(WorkerPool(worker), NarrowAction("n1", "Find Ada.", (3, 0)))
    assert sorted(worker.asked) == [("Find Ada.", 0), ("Find Ada.", 3)]
    assert [f.shard for f in output.findings] == [0, 3]
    assert output.n_shards == 2


def test_a_failure_is_a_gap_and_never_a_finding():
    usage = WorkerUsage()
    output = run(
        WorkerPool(SubstringWorker(fail=lambda shard: shard in (1, 2))),
        NarrowAction("n1", "Find Ada."),
        usage,
    )
    assert [f.shard for f in output.findings] == [0, 3]
    assert output.failures == (
        WorkerFailure("n1", 1, "shard 1: scripted failure"),
        WorkerFailure("n1", 2, "shard 2: scripted failure"),
    )
    assert (usage.calls, usage.failures) == (4, 2)


def test_a_bug_in_the_worker_is_not_a_gap():
    table = {0: quotes(), 1: ZeroDivisionError("bug"), 2: quotes(), 3: ModelError("down")}
    with pytest.raises(ZeroDivisionError, match="bug"):
        run(WorkerPool(TableWorker(table)), NarrowAction("n1", "Find."))


@given(
    st.lists(
        st.lists(st.none() | st.floats(0, 1), max_size=4).map(lambda scores: quotes(*scores)),
        min_size=4,
        max_size=4,
    ),
    st.integers(1, 6),
)
def test_the_best_findings_are_kept_and_the_rest_counted(scans, most):
    class Instant:
        async def scan(self, instruction, context, shard):
            return scans[shard]

    output = run(WorkerPool(Instant(), max_findings=most), NarrowAction("n1", "Find."))
    total = sum(len(scan.quotes) for scan in scans)
    assert len(output.findings) == min(most, total)
    assert output.n_cut == total - len(output.findings)
    places = [(f.shard, f.quote) for f in output.findings]
    assert places == sorted(places)
    all_scores = sorted(((q.score or 0.0) for scan in scans for q in scan.quotes), reverse=True)
    assert sorted(((f.score or 0.0) for f in output.findings), reverse=True) == all_scores[:most]


def test_without_scores_the_first_in_shard_order_are_kept():
    table = {shard: quotes(None, None) for shard in range(4)}
    output = run(WorkerPool(TableWorker(table), max_findings=3), NarrowAction("n1", "Find."))
    assert [(f.shard, f.quote) for f in output.findings] == [(0, "q0"), (0, "q1"), (1, "q0")]
    assert output.n_cut == 5


def test_usage_adds_up_over_calls():
    scan = Scan((), prompt_tokens=100, cached_tokens=90, output_tokens=5)
    memo = Scan((), memo_hit=True)
    table = {0: scan, 1: memo, 2: scan, 3: ModelError("down")}
    usage = WorkerUsage()
    run(WorkerPool(TableWorker(table)), NarrowAction("n1", "Find."), usage)
    assert (usage.calls, usage.failures, usage.memo_hits) == (4, 1, 1)
    assert (usage.prompt_tokens, usage.cached_tokens, usage.output_tokens) == (200, 180, 10)
    assert usage.seconds > 0


@pytest.mark.parametrize("bound", [1, 3])
def test_the_bound_holds_over_all_callers_of_the_pool(bound):
    running, most = 0, 0

    class Counting:
        async def scan(self, instruction, context, shard):
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.001)
            running -= 1
            return Scan(())

    async def main():
        pool = WorkerPool(Counting(), max_concurrency=bound)
        await asyncio.gather(
            *(pool.run(NarrowAction(f"n{i}", "Find."), CONTEXT, WorkerUsage()) for i in range(5))
        )

    asyncio.run(main())
    assert most == bound


def test_a_slot_is_given_back_after_a_failure_and_after_cancellation():
    async def main():
        gate = asyncio.Event()

        class Gated:
            async def scan(self, instruction, context, shard):
                await gate.wait()
                raise ModelError("down")

        pool = WorkerPool(Gated(), max_concurrency=2)
        action = NarrowAction("n1", "Find.")
        cancelled = asyncio.ensure_future(pool.run(action, CONTEXT, WorkerUsage()))
        await asyncio.sleep(0.01)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        gate.set()
        for _ in range(2):
            output = await asyncio.wait_for(pool.run(action, CONTEXT, WorkerUsage()), 5)
            assert len(output.failures) == 4

    asyncio.run(main())


def test_a_context_without_shards_has_no_findings():
    empty = TextContext.cut("e", "", count_words, 5)
    action = NarrowAction("n1", "Find.")
    output = asyncio.run(WorkerPool(SubstringWorker()).run(action, empty, WorkerUsage()))
    assert (output.findings, output.failures, output.n_shards) == ((), (), 0)


@pytest.mark.parametrize("bounds", [{"max_concurrency": 0}, {"max_findings": 0}])
def test_bounds_must_be_positive(bounds):
    with pytest.raises(ValueError, match="at least 1"):
        WorkerPool(SubstringWorker(), **bounds)


@pytest.mark.parametrize(
    ("bounds", "together"),
    [
        ({"overcommit": 0.0}, 6),
        ({"overcommit": 1.0}, 4),
        ({"overcommit": 1.0, "processes": 2}, 2),
        ({"overcommit": 2.0, "processes": 4}, 2),
    ],
)
def test_contexts_enter_while_they_fit_this_process_share_of_the_cache(bounds, together):
    class Served(SubstringWorker):
        asked_for = 0

        async def kv_tokens(self):
            self.asked_for += 1
            return 4 * sum(shard.n_tokens for shard in CONTEXT.shards)

    async def main():
        worker, inside, most = Served(), 0, 0
        pool = WorkerPool(worker, **bounds)

        async def visit(i: int) -> None:
            nonlocal inside, most
            async with pool.admit(replace(CONTEXT, id=f"c{i}")):
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(0.01)
                inside -= 1

        await asyncio.gather(*(visit(i) for i in range(6)))
        assert most == together and worker.asked_for == 1

    asyncio.run(main())
