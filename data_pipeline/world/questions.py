"""Multi-hop questions over the facts of a region: a walk from subject to object, asked in one."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from data_pipeline.world.region import Region
from data_pipeline.world.relations import Fact, Kind
from disco_rl.core.sample import Hop, Sample
from disco_rl.core.shards import shards_of_span

DATA_SOURCE = "disco/world"
_TRIES = 400
# Nothing leads to a work, so a chain about one must start there.
_START_WEIGHTS = {Kind.BOOK: 4, Kind.OPERA: 4, Kind.PAINTING: 4}


@dataclass(frozen=True, slots=True)
class WorldQuestion:
    """A sample and its chain: the object of each fact is the subject of the next, and the last
    object is the answer."""

    sample: Sample
    chain: tuple[Fact, ...]


def ask_region(
    rng: random.Random,
    region: Region,
    n_questions: int,
    hops: Mapping[int, float],
    first_index: int,
) -> list[WorldQuestion]:
    """Distinct questions about a region, numbered from `first_index`.

    `hops` gives the share of each number of hops. Evidence of a question's hops stands in
    different shards wherever the region has such a chain. Raises `ValueError` when the region
    is too small for that many questions.
    """
    facts_of: dict[str, list[Fact]] = {}
    for fact in region.facts:
        facts_of.setdefault(fact.subject, []).append(fact)
    questions: list[WorldQuestion] = []
    asked: set[tuple[tuple[str, str], ...]] = set()
    for index in range(first_index, first_index + n_questions):
        length = rng.choices(list(hops), weights=list(hops.values()))[0]
        chain = _chain(rng, region, facts_of, length, asked)
        asked.add(_key(chain))
        questions.append(WorldQuestion(_sample(region, chain, _text(rng, chain), index), chain))
    return questions


def _key(chain: Sequence[Fact]) -> tuple[tuple[str, str], ...]:
    return tuple((fact.relation.name, fact.subject) for fact in chain)


def _chain(
    rng: random.Random,
    region: Region,
    facts_of: Mapping[str, Sequence[Fact]],
    length: int,
    asked: set[tuple[tuple[str, str], ...]],
) -> tuple[Fact, ...]:
    """A new chain with a near-duplicate among its subjects and its hops in different shards, or
    the closest to that among many tries."""
    starts = list(facts_of)
    weights = [_START_WEIGHTS.get(region.kinds[start], 1) for start in starts]
    best: tuple[Fact, ...] = ()
    best_score = (-1, False)
    for _ in range(_TRIES):
        chain = _walk(rng, facts_of, rng.choices(starts, weights)[0], length)
        if len(chain) < length or _key(chain) in asked:
            continue
        places = {shards_of_span(region.context.shards, *fact.span)[0] for fact in chain}
        score = (len(places), any(fact.subject in region.twins for fact in chain))
        if score > best_score:
            best, best_score = chain, score
        if score == (length, True):
            break
    if not best:
        raise ValueError(
            f"context {region.context.id!r} has no further chain of {length} hops; "
            "ask fewer questions a context, or make longer contexts"
        )
    return best


def _walk(
    rng: random.Random, facts_of: Mapping[str, Sequence[Fact]], start: str, length: int
) -> tuple[Fact, ...]:
    """A random walk that repeats neither an entity nor a relation; short if it got stuck."""
    chain: list[Fact] = []
    seen, subject = {start}, start
    while len(chain) < length:
        used = {fact.relation.name for fact in chain}
        options = [
            fact
            for fact in facts_of.get(subject, ())
            if fact.object not in seen
            and fact.relation.name not in used
            and (len(chain) + 1 == length or fact.object in facts_of)
        ]
        if not options:
            break
        chain.append(rng.choice(options))
        subject = chain[-1].object
        seen.add(subject)
    return tuple(chain)


def _text(rng: random.Random, chain: Sequence[Fact]) -> str:
    """The question in one sentence, from the inside out."""
    phrase, closed = chain[0].subject, False
    for fact in chain[:-1]:
        alt = fact.relation.alt
        # "the town where X was born" may hold another phrase but not a second verb at its end.
        usable = not closed or alt.endswith("{s}")
        template = alt if usable and rng.random() < 0.5 else fact.relation.noun
        closed = closed or not template.endswith("{s}")
        phrase = template.format(s=phrase)
    last = chain[-1].relation
    if (not closed and rng.random() < 0.6) or last.ask.endswith("{s}?"):
        return last.question(phrase)
    word = "Who" if last.object is Kind.PERSON else "What"
    return f"{word} is {last.noun_phrase(phrase)}?"


def _sample(region: Region, chain: Sequence[Fact], question: str, index: int) -> Sample:
    shards = region.context.shards
    return Sample(
        index=index,
        question=question,
        answers=(chain[-1].object,),
        context_id=region.context.id,
        n_shards=len(shards),
        n_tokens=region.n_tokens,
        hops=tuple(
            Hop(
                question=fact.relation.question(fact.subject),
                answer=fact.object,
                aliases=(),
                shard_ids=tuple(shards_of_span(shards, *fact.span)),
                span=fact.span,
            )
            for fact in chain
        ),
        data_source=DATA_SOURCE,
    )
