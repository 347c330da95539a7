"""Evidence: do the findings behind the answer stand where the gold facts stand.

F-beta (beta 2, so that recall weighs four times as much) of precision p and recall r,

    f = 5 p r / (4 p + r),

times whether the judge says that the cited quotes support the answer. Two ways to count, of which
`disco.reward.evidence_by` chooses one and metrics show both:

- `shard`: r is the share of gold hops one of whose shards is cited, p the share of cited shards
  that are a hop's;
- `span`: r is the share of gold hops on whose very place in the context a cited quote stands, p
  the share of cited quotes that stand on a hop's. Stricter: another sentence of a gold shard of
  4,096 tokens earns nothing.

Worked, two hops in shards 2 and 5: citing 2 and 5 is p 1, r 1, f 1. Only 2: p 1, r 1/2, f 5/9.
Shards 2, 5 and 8: p 2/3, r 1, f 10/11. All of 100: p 1/50, r 1, f 5/54. Shard 8: f 0.

The answer's evidence is what its terminal node descends from. Narrow actions have no parents, so
a second hop needs a second stage, and the first hop's evidence stands in an earlier one: the
findings behind earlier stages' answers, which the Driver's history carries forward, are ancestors
of the accepted answer too. Findings whose quote isn't verbatim in its shard never count.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from disco_rl.core.evidence import Finding
from disco_rl.core.sample import Hop
from disco_rl.core.shards import Shard
from disco_rl.core.trajectory import Trajectory

BETA = 2.0


@dataclass(frozen=True, slots=True)
class EvidenceScore:
    """F-beta and its parts. `recall` is over gold hops, `precision` over shards or quotes."""

    f_beta: float
    precision: float
    recall: float

    @classmethod
    def of(cls, precision: float, recall: float, beta: float = BETA) -> "EvidenceScore":
        if not (precision and recall):
            return cls(0.0, precision, recall)
        square = beta * beta
        f_beta = (1 + square) * precision * recall / (square * precision + recall)
        return cls(min(f_beta, 1.0), precision, recall)


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
    """By shard: F-beta of the gold hops' shards among the shards of `findings`.

    A hop is found when any of its shards is cited, since a passage that runs over a shard's edge
    names both shards though its evidence is in one. A cited shard is right when it is any hop's.
    Citing every shard buys recall with precision. Raises `ValueError` where there are no hops.
    """
    _refuse_none(hops)
    cited = {finding.shard for finding in findings}
    gold = {shard for hop in hops for shard in hop.shard_ids}
    recall = sum(not cited.isdisjoint(hop.shard_ids) for hop in hops) / len(hops)
    precision = len(cited & gold) / len(cited) if cited else 0.0
    return EvidenceScore.of(precision, recall, beta)


def span_score(
    hops: Sequence[Hop],
    findings: Sequence[Finding],
    shards: Sequence[Shard],
    *,
    beta: float = BETA,
) -> EvidenceScore:
    """By span: F-beta of the gold hops' places among the places of the findings' quotes.

    `shards` are the context's, which say where a quote stands in it. Repeated quotes count once.
    Raises `ValueError` where there are no hops.
    """
    _refuse_none(hops)
    quotes = {place for f in findings if (place := place_of(f, shards)) is not None}
    recall = sum(any(meets(quote, hop.span) for quote in quotes) for hop in hops) / len(hops)
    right = sum(any(meets(quote, hop.span) for hop in hops) for quote in quotes)
    return EvidenceScore.of(right / len(quotes) if quotes else 0.0, recall, beta)


def place_of(finding: Finding, shards: Sequence[Shard]) -> tuple[int, int] | None:
    """The characters of the context where the finding's quote stands; None where it doesn't."""
    if finding.span is None or not 0 <= finding.shard < len(shards):
        return None
    start = shards[finding.shard].start
    return start + finding.span[0], start + finding.span[1]


def meets(quote: tuple[int, int], gold: tuple[int, int]) -> bool:
    """Whether the spans share at least half of the shorter one, so that touching isn't enough."""
    shared = min(quote[1], gold[1]) - max(quote[0], gold[0])
    return shared > 0 and 2 * shared >= min(quote[1] - quote[0], gold[1] - gold[0])


def _refuse_none(hops: Sequence[Hop]) -> None:
    if not hops:
        raise ValueError("evidence has no gold hops to be scored against")
