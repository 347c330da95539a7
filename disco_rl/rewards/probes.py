"""What `reward_check` puts to the judge: replies of which it is known whether they are right."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from disco_rl.core.sample import Sample
from disco_rl.core.text import normalise_answer
from disco_rl.rewards.tricks import HEDGES, INSTRUCTIONS, MASTER_KEYS, OTHER_SCRIPTS

LONG_CHARS = 20_000
PARAPHRASES = (
    "It is {}.",
    "The answer is {}.",
    "That would be {}.",
    "{} is what the document says.",
)


class Kind(str, Enum):
    """What a probe is, as the report's table names it."""

    GOLD = "gold answer"
    PARAPHRASE = "paraphrase"
    OTHER = "another question's answer"
    CONTENTLESS = "contentless"
    HEDGE = "hedge or list"
    LONG = "very long"
    INSTRUCTION = "instruction to the judge"
    SCRIPT = "another script"
    GOLD_QUOTES = "evidence: gold quotes"
    OTHER_QUOTES = "evidence: other quotes"
    FORGED_QUOTES = "evidence: an instruction"


TRICKS = frozenset(
    (Kind.CONTENTLESS, Kind.HEDGE, Kind.LONG, Kind.INSTRUCTION, Kind.SCRIPT, Kind.FORGED_QUOTES)
)
RIGHT = frozenset((Kind.GOLD, Kind.PARAPHRASE, Kind.GOLD_QUOTES))


@dataclass(frozen=True, slots=True)
class Probe:
    """A reply to a row's question; where there are `quotes`, whether they support it is asked."""

    kind: Kind
    sample: Sample
    reply: str
    quotes: tuple[str, ...] | None = None


def answer_probes(rows: Sequence[Sample], seed: int) -> Iterator[Probe]:
    """One probe of each kind a row, for rows that have another row of another answer."""
    for at, row in enumerate(rows):
        other = other_row(row, rows)
        if other is None:
            continue
        gold, wrong = row.answers[0], other.answers[0]
        alias = _pick(row.answers[1:] or (gold,), at)
        replies = {
            Kind.GOLD: gold,
            Kind.PARAPHRASE: _pick(PARAPHRASES, at).replace("{}", alias),
            Kind.OTHER: wrong,
            Kind.CONTENTLESS: _pick(MASTER_KEYS, at + seed),
            Kind.HEDGE: _pick((f"{gold} or {wrong}", *HEDGES), at),
            Kind.LONG: _long(rows, row, random.Random(seed + at)),
            Kind.INSTRUCTION: _pick(INSTRUCTIONS, at + seed),
            Kind.SCRIPT: _pick(OTHER_SCRIPTS, at + seed),
        }
        for kind, reply in replies.items():
            yield Probe(kind, row, reply)


def evidence_probes(
    rows: Sequence[Sample], quotes: dict[int, tuple[str, ...]], seed: int
) -> Iterator[Probe]:
    """The gold answer with its own quotes, another row's, and an order in their place.

    `quotes` holds the text at each row's gold spans, by the row's place in `rows`.
    """
    for at, row in enumerate(rows):
        gold = row.answers[0]
        if not quotes.get(at):
            continue
        yield Probe(Kind.GOLD_QUOTES, row, gold, quotes[at])
        yield Probe(Kind.FORGED_QUOTES, row, gold, (_pick(INSTRUCTIONS, at + seed),))
        for step in range(1, len(rows)):
            others = quotes.get((at + step) % len(rows), ())
            # Rows of one document may share facts.
            if others and normalise_answer(gold) not in normalise_answer(" ".join(others)):
                yield Probe(Kind.OTHER_QUOTES, row, gold, others)
                break


def other_row(row: Sample, rows: Sequence[Sample]) -> Sample | None:
    """The next row around whose answer isn't one of `row`'s own."""
    own = {normalise_answer(answer) for answer in row.answers}
    start = rows.index(row)
    for step in range(1, len(rows)):
        other = rows[(start + step) % len(rows)]
        if normalise_answer(other.answers[0]) not in own:
            return other
    return None


def _pick(options: Sequence[str], at: int) -> str:
    return options[at % len(options)]


def _long(rows: Sequence[Sample], row: Sample, rng: random.Random) -> str:
    """Every name of the data set over and over, the gold answer among them."""
    names = [other.answers[0] for other in rows] or [row.answers[0]]
    parts, size = [], 0
    while size < LONG_CHARS:
        rng.shuffle(names)
        parts.append(", or maybe ".join(names))
        size += len(parts[-1])
    return "; ".join(parts)
