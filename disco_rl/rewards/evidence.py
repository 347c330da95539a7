"""Evidence: do the findings behind the answer stand in the gold shards.

The answer's evidence is what its terminal node descends from. Narrow actions have no parents, so
a second hop needs a second stage, and the first hop's evidence stands in an earlier one: the
findings behind earlier stages' answers, which the Driver's history carries forward, are ancestors
of the accepted answer too. Findings whose quote isn't verbatim in its shard never count.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from disco_rl.core.evidence import Finding
from disco_rl.core.sample import Hop
from disco_rl.core.trajectory import Trajectory

BETA = 2.0


@dataclass(frozen=True, slots=True)
class EvidenceScore:
    """F-beta and its parts. `recall` is over gold hops, `precision` over cited shards."""

    f_beta: float
    precision: float
    recall: float


def cited_findings(trajectory: Trajectory) -> list[Finding]:
    """The verbatim findings that are ancestors of the answer that stands, in stage order.

    Empty where no stage answered. A finding that an answering stage's terminal node doesn't
    depend on, or of a stage that never answered, is not cited.
    """
    cited: list[Finding] = []
    for stage in trajectory.stages:  # none after the accepted one has answered
        if stage.plan is not None and stage.answer is not None:
            nodes = stage.plan.ancestors(stage.plan.terminal.id)
            cited.extend(f for f in stage.pool.findings(nodes) if f.span is not None)
    return cited


def evidence_score(
    hops: Sequence[Hop], findings: Sequence[Finding], *, beta: float = BETA
) -> EvidenceScore:
    """F-beta of the gold hops' shards among the shards of `findings`.

    A hop is found when any of its shards is cited, since a passage that runs over a shard's edge
    names both shards though its evidence is in one. A cited shard is right when it is any hop's.
    Citing every shard buys recall with precision. Raises `ValueError` where there are no hops.
    """
    if not hops:
        raise ValueError("evidence has no gold hops to be scored against")
    cited = {finding.shard for finding in findings}
    gold = {shard for hop in hops for shard in hop.shard_ids}
    recall = sum(not cited.isdisjoint(hop.shard_ids) for hop in hops) / len(hops)
    precision = len(cited & gold) / len(cited) if cited else 0.0
    if not (precision and recall):
        return EvidenceScore(0.0, precision, recall)
    square = beta * beta
    f_beta = (1 + square) * precision * recall / (square * precision + recall)
    return EvidenceScore(min(f_beta, 1.0), precision, recall)
