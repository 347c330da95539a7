"""The paragraphs that an expansion starts from, and what in them nothing may enter."""

from collections.abc import Sequence
from dataclasses import dataclass

from data_pipeline.evidence import evidence_span
from data_pipeline.musique_records import Paragraph, Record

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Host:
    """A paragraph as it stands in a context: title, line break, text, an empty line.

    `evidence` are disjoint spans of `text`, in order, that stay as they are: whole sentences that
    hold the answers of the question's hops.
    """

    title: str
    text: str
    evidence: tuple[Span, ...]

    @property
    def gold(self) -> bool:
        return bool(self.evidence)


@dataclass(frozen=True, slots=True)
class Hosts:
    """`hops` gives for each hop its host and its evidence span in the host's text."""

    hosts: tuple[Host, ...]
    hops: tuple[tuple[int, Span], ...]


def hosts_of(record: Record, distractors: bool) -> Hosts:
    """The supporting paragraphs in the order of the hops, each once, then the other ones."""
    paragraphs = list(dict.fromkeys(step.paragraph for step in record.steps))
    if distractors:
        paragraphs = list(dict.fromkeys([*paragraphs, *record.paragraphs]))
    places: dict[Paragraph, int] = {paragraph: i for i, paragraph in enumerate(paragraphs)}
    hops: list[tuple[int, Span]] = []
    for at, step in enumerate(record.steps):
        last = at == len(record.steps) - 1
        aliases = tuple(a for a in record.answers if a != step.answer) if last else ()
        shift = len(step.paragraph.title) + 1
        start, end = evidence_span(step, aliases)
        hops.append((places[step.paragraph], (start + shift, end + shift)))
    return Hosts(
        tuple(
            Host(p.title, f"{p.title}\n{p.text}\n\n", _merged([s for h, s in hops if h == i]))
            for i, p in enumerate(paragraphs)
        ),
        tuple(hops),
    )


def _merged(spans: Sequence[Span]) -> tuple[Span, ...]:
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return tuple(merged)
