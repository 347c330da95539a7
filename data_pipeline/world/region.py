"""A region: the pages of one context, and every fact that stands in them."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from data_pipeline.world.filler import filler
from data_pipeline.world.names import Name, NameMaker
from data_pipeline.world.relations import BY_NAME, Fact, Kind, Relation, relations_of
from disco_rl.core.shards import CountTokens, TextContext

MIN_TOKENS = 900
"""The shortest context that holds enough pages for 4-hop questions with distractors."""

_SHARES: tuple[tuple[Kind, float], ...] = (
    (Kind.PERSON, 0.42),
    (Kind.TOWN, 0.22),
    (Kind.COUNTRY, 0.10),
    (Kind.BOOK, 0.07),
    (Kind.OPERA, 0.05),
    (Kind.PAINTING, 0.05),
    (Kind.ORGANISATION, 0.09),
)
_TOKENS_A_PAGE = 110
_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip

_Stated = tuple[Relation, str, str]


@dataclass(frozen=True)
class Region:
    """A context of the world. `facts` are in text order; `twins` maps a name to its
    near-duplicate and back; `kinds` holds every page's title."""

    context: TextContext
    facts: tuple[Fact, ...]
    twins: Mapping[str, str]
    kinds: Mapping[str, Kind]

    @property
    def n_tokens(self) -> int:
        return sum(shard.n_tokens for shard in self.context.shards)


def make_region(
    rng: random.Random,
    names: NameMaker,
    context_id: str,
    n_tokens: int,
    count: CountTokens,
    shard_size: int,
) -> Region:
    """Pages in random order that fill, and don't pass, about `n_tokens` tokens.

    Raises `ValueError` when `n_tokens` is under `MIN_TOKENS`.
    """
    if n_tokens < MIN_TOKENS:
        raise ValueError(f"a context needs at least {MIN_TOKENS} tokens, not {n_tokens}")
    entities, twins = _entities(rng, names, max(len(_SHARES) + 6, n_tokens // _TOKENS_A_PAGE))
    stated = _facts(rng, entities)
    kinds = {title: kind for kind, titles in entities.items() for title in titles}
    order = list(kinds)
    rng.shuffle(order)
    pages = _pages(rng, order, kinds, stated, n_tokens, count)
    text, facts = _layout(pages)
    context = TextContext.cut(context_id, text, count, shard_size)
    return Region(context, tuple(facts), twins, kinds)


def _entities(
    rng: random.Random, names: NameMaker, n_pages: int
) -> tuple[dict[Kind, list[str]], dict[str, str]]:
    """Titles by kind. About half of each kind come as pairs of near-duplicates."""
    entities: dict[Kind, list[str]] = {}
    twins: dict[str, str] = {}
    for kind, share in _SHARES:
        n, made = max(2 if kind is Kind.COUNTRY else 1, round(n_pages * share)), []
        n_pairs = (n + 2) // 4 if n > 1 else 0
        for i in range(n - n_pairs):
            name: Name = names.make(kind)
            made.append(str(name))
            if i < n_pairs:
                twin = str(names.twin(name))
                made.append(twin)
                twins |= {str(name): twin, twin: str(name)}
        entities[kind] = made
    return entities, twins


def _facts(rng: random.Random, entities: Mapping[Kind, Sequence[str]]) -> dict[str, list[_Stated]]:
    """Facts by the page that states them; a subject has one object a relation."""
    stated: dict[str, list[_Stated]] = {t: [] for titles in entities.values() for t in titles}

    def add(name: str, subject: str, object: str) -> None:
        stated[subject].append((BY_NAME[name], subject, object))

    people, towns, countries = (entities[k] for k in (Kind.PERSON, Kind.TOWN, Kind.COUNTRY))
    # A capital must lie in its country, so the first towns go to one country each.
    for i, town in enumerate(rng.sample(towns, len(towns))):
        country = countries[i] if i < len(countries) else rng.choice(countries)
        add("country", town, country)
        if i < len(countries):
            add("capital", country, town)
    # Only one of the two pages states a marriage, so that one sentence is its only evidence.
    couples = rng.sample(people, len(people))
    for left, right in zip(couples[::2], couples[1::2], strict=False):
        add("spouse", left, right)
    done = ("country", "capital", "spouse")
    for kind, titles in entities.items():
        for relation in relations_of(kind):
            if relation.name in done:
                continue
            for title in titles:
                add(relation.name, title, _object(rng, relation.object, title, entities))
    return stated


def _object(
    rng: random.Random, kind: Kind, subject: str, entities: Mapping[Kind, Sequence[str]]
) -> str:
    if kind is Kind.YEAR:
        return str(rng.randint(1400, 1999))
    if kind is Kind.DATE:
        return f"{rng.randint(1, 28)} {rng.choice(_MONTHS)} {rng.randint(1400, 1999)}"
    return rng.choice([title for title in entities[kind] if title != subject])


@dataclass
class _Page:
    title: str
    sentences: list[tuple[str, _Stated | None]]
    see_also: str


def _pages(
    rng: random.Random,
    order: Sequence[str],
    kinds: Mapping[str, Kind],
    stated: Mapping[str, list[_Stated]],
    n_tokens: int,
    count: CountTokens,
) -> list[_Page]:
    pages, used = [], 0
    for title in order:
        sentences: list[tuple[str, _Stated | None]] = []
        for relation, subject, object in stated[title]:
            words = relation.state(subject, object, rng.randrange(len(relation.facts)))
            sentences.append((words, (relation, subject, object)))
        linked = [object for _, _, object in stated[title] if object in kinds]
        page = _Page(title, sentences, f"See also: {', '.join(dict.fromkeys(linked))}.")
        used += sum(count([f"{title}\n", *(words for words, _ in sentences), page.see_also]))
        pages.append(page)
    # Padding goes round the pages until the next sentence would pass the length asked for.
    by_kind = {kind: [t for t in order if kinds[t] is kind] for kind in set(kinds.values())}
    at = 0
    while True:
        page = pages[at % len(pages)]
        kind = kinds[page.title]
        others = [title for title in by_kind[kind] if title != page.title] or [order[0]]
        written = {sentence for sentence, _ in page.sentences}
        for _ in range(8):  # a page shouldn't repeat itself, but a short one may have to
            words = filler(rng, kind, page.title, rng.choice(others))
            if words not in written:
                break
        used += count([words])[0]
        if used > n_tokens:
            break
        page.sentences.append((words, None))
        at += 1
    for page in pages:
        rng.shuffle(page.sentences)
    return pages


def _layout(pages: Sequence[_Page]) -> tuple[str, list[Fact]]:
    """The text, one page after another, and the facts at their places in it."""
    parts: list[str] = []
    facts: list[Fact] = []
    at = 0

    def write(text: str) -> None:
        nonlocal at
        parts.append(text)
        at += len(text)

    for page in pages:
        write(f"{page.title}\n")
        for words, fact in page.sentences:
            if fact is not None:
                relation, subject, object = fact
                facts.append(Fact(relation, subject, object, words, (at, at + len(words))))
            write(f"{words} ")
        write(f"{page.see_also}\n\n")
    return "".join(parts), facts
