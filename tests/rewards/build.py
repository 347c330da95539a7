"""Trajectories and samples in a line, for the reward tests."""

from collections.abc import Sequence

from disco_rl.core.evidence import EvidencePool, Finding, NarrowOutput
from disco_rl.core.plan import NarrowAction, Plan, WideAction
from disco_rl.core.sample import Hop, Sample
from disco_rl.core.trajectory import (
    CallKind,
    DriverCall,
    Generation,
    Stage,
    StopReason,
    Trajectory,
)


def finding(shard: int, quote: str, *, verbatim: bool = True, node: str = "n1") -> Finding:
    return Finding(node, shard, quote, (0, len(quote)) if verbatim else None)


def stage(index: int, answer: str | None, findings: Sequence[Finding]) -> Stage:
    nodes = sorted({f.node for f in findings}) or ["n1"]
    plan = Plan(
        (
            *(NarrowAction(node, f"Find the fact of {node}.") for node in nodes),
            WideAction("w1", "Answer.", tuple(nodes)),
        )
    )
    pool = EvidencePool(
        {n: NarrowOutput(n, tuple(f for f in findings if f.node == n)) for n in nodes}
    )
    return Stage(index, plan, pool, answer)


def call(error: str | None = None) -> DriverCall:
    return DriverCall(CallKind.PLAN, 0, None, Generation("text"), error=error)


def trajectory(
    stages: Sequence[Stage],
    calls: Sequence[DriverCall] = (),
    stop: StopReason = StopReason.ACCEPTED,
    error: str | None = None,
) -> Trajectory:
    made = Trajectory("Who?", "c1", list(stages), list(calls), stop=stop, error=error)
    made.answer = made.accepted.answer if made.accepted else None
    return made


def sample(
    answers: Sequence[str] = ("Ada Vey",),
    gold: Sequence[Sequence[int]] = ((2,),),
    index: int = 0,
    n_shards: int = 10,
) -> Sample:
    hops = tuple(Hop("?", answers[0], (), tuple(shards), (0, 1)) for shards in gold)
    return Sample(index, "Who?", tuple(answers), "c1", n_shards, 1000, hops, "test")
