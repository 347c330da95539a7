"""Who missed a hop: the Driver never asked, the Worker missed it, or the answer left it out.

For metrics and records, never for the reward: whether an instruction asks for a hop is read off
its words, which is a heuristic (ours).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from disco_rl.core.evidence import Finding, NarrowOutput
from disco_rl.core.plan import NarrowAction
from disco_rl.core.sample import Hop, Sample
from disco_rl.core.shards import Shard
from disco_rl.core.trajectory import Trajectory
from disco_rl.rewards.evidence import (
    EvidenceScore,
    cited_findings,
    evidence_score,
    meets,
    place_of,
    span_score,
)


class Fate(str, Enum):
    """What became of a gold hop in a trajectory; the first that holds."""

    USED = "used"  # found, and behind the answer that stands
    UNUSED = "unused"  # found, and not used: no dependency, or its stage never answered
    MISSED = "missed"  # a Worker was asked, read the shard, and didn't find it
    FAILED = "failed"  # a Worker was asked, and failed on the shard, or its output was discarded
    NEVER_ASKED = "never_asked"  # no narrow action named its subject and went to its shards


@dataclass(frozen=True, slots=True)
class HopFate:
    """`stage` is where it was first found, or else first asked for; None where never."""

    fate: Fate
    stage: int | None


@dataclass(frozen=True, slots=True)
class EvidenceReport:
    """Evidence of one trajectory. `by_span` is None where the context's shards aren't known."""

    by_shard: EvidenceScore
    by_span: EvidenceScore | None
    hops: tuple[HopFate, ...]

    def to_record(self) -> dict[str, Any]:
        return asdict(self)


def evidence_report(
    trajectory: Trajectory, sample: Sample, shards: Sequence[Shard] | None = None
) -> EvidenceReport | None:
    """None where the sample names no gold hop."""
    if not sample.hops:
        return None
    cited = cited_findings(trajectory)
    return EvidenceReport(
        evidence_score(sample.hops, cited),
        None if shards is None else span_score(sample.hops, cited, shards),
        tuple(_fate(trajectory, hop, names, cited, shards) for hop, names in _subjects(sample)),
    )


def _fate(
    trajectory: Trajectory,
    hop: Hop,
    subject: frozenset[str],
    cited: Sequence[Finding],
    shards: Sequence[Shard] | None,
) -> HopFate:
    found = asked = None
    failed = False
    for stage in trajectory.stages:
        if found is None and any(_shows(f, hop, shards) for f in stage.pool.findings()):
            found = stage.index
        for action in stage.plan.nodes if stage.plan else ():
            if not isinstance(action, NarrowAction) or not _asks(action, hop, subject):
                continue
            output = stage.pool.outputs.get(action.id)
            if isinstance(output, NarrowOutput):  # else the stage ended before it was run
                asked = stage.index if asked is None else asked
                # A study's fact_dropout isn't the Worker's miss, nor was the Driver idle.
                failed = failed or output.dropped
                failed = failed or any(f.shard in hop.shard_ids for f in output.failures)
    if any(_shows(finding, hop, shards) for finding in cited):
        return HopFate(Fate.USED, found)
    if found is not None:
        return HopFate(Fate.UNUSED, found)
    if asked is not None:
        return HopFate(Fate.FAILED if failed else Fate.MISSED, asked)
    return HopFate(Fate.NEVER_ASKED, None)


def _shows(finding: Finding, hop: Hop, shards: Sequence[Shard] | None) -> bool:
    """Whether a verbatim finding stands on the hop's place; in its shard, where that is unknown."""
    if finding.span is None:
        return False
    if shards is None:
        return finding.shard in hop.shard_ids
    place = place_of(finding, shards)
    return place is not None and meets(place, hop.span)


def _asks(action: NarrowAction, hop: Hop, subject: frozenset[str]) -> bool:
    """It goes to one of the hop's shards, and names more than half of the subject's words."""
    sent = action.shards is None or not set(hop.shard_ids).isdisjoint(action.shards)
    return sent and 2 * len(subject & _words(action.instruction)) > len(subject)


_WORD = re.compile(r"\w+")
_STEP = re.compile(r"#(\d+)")
_PLAIN = frozenset(
    _WORD.findall(
        "a an and are at by did do does for from had has have how in is it of on or the their to "
        "was were what when where which who whom whose why"
    )
)


def _subjects(sample: Sample) -> Iterator[tuple[Hop, frozenset[str]]]:
    """Each hop and the words of what it asks about: its names and numbers, or else all its words.

    MuSiQue's `#1` stands for the first hop's answer.
    """
    answers: Mapping[str, str] = {str(i + 1): hop.answer for i, hop in enumerate(sample.hops)}
    for hop in sample.hops:
        question = _STEP.sub(lambda match: answers.get(match[1], ""), hop.question)
        names = {word for word in _WORD.findall(question) if not word[0].islower()}
        named = frozenset(word.lower() for word in names) - _PLAIN
        yield hop, named or _words(question) or frozenset({""})


def _words(text: str) -> frozenset[str]:
    return frozenset(word.lower() for word in _WORD.findall(text)) - _PLAIN
