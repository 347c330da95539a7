"""Every relation of the world, and every way to state it, ask for it or look it up."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Kind(str, Enum):
    """What an entity or a value is."""

    PERSON = "person"
    TOWN = "town"
    COUNTRY = "country"
    BOOK = "book"
    OPERA = "opera"
    PAINTING = "painting"
    ORGANISATION = "organisation"
    DATE = "date"
    YEAR = "year"


@dataclass(frozen=True, slots=True)
class Relation:
    """A functional relation: a subject has at most one object.

    Templates have `{s}` for the subject, a name or a noun phrase that stands for it, and `{o}`
    for the object. `noun` ends with `{s}`, so it nests without limit; `alt` says the same in other
    words. `facts` are the paraphrases that pages use: each names its subject and its object.
    """

    name: str
    subjects: tuple[Kind, ...]
    object: Kind
    noun: str
    alt: str
    ask: str
    facts: tuple[str, ...]

    def noun_phrase(self, subject: str) -> str:
        """`the birthplace of Varo Kelin`."""
        return self.noun.format(s=subject)

    def question(self, subject: str) -> str:
        """The single-fact question: `Where was Varo Kelin born?`."""
        return self.ask.format(s=subject)

    def lookup(self, subject: str) -> str:
        """The narrow action: `Find the birthplace of Varo Kelin.`"""
        return f"Find {self.noun_phrase(subject)}."

    def gap(self, subject: str) -> str:
        """What a review says is missing: `The birthplace of Varo Kelin is missing.`"""
        phrase = self.noun_phrase(subject)
        return f"{phrase[0].upper()}{phrase[1:]} is missing."

    def state(self, subject: str, object: str, paraphrase: int) -> str:
        """The fact as a sentence, in the words of paraphrase number `paraphrase`."""
        return self.facts[paraphrase].format(s=subject, o=object)


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact as it stands in a context: `context.text[span[0]:span[1]] == sentence`."""

    relation: Relation
    subject: str
    object: str
    sentence: str
    span: tuple[int, int]


_WORKS = (Kind.BOOK, Kind.OPERA, Kind.PAINTING)


def _relation(
    name: str,
    subjects: Kind | Sequence[Kind],
    object: Kind,
    noun: str,
    alt: str,
    ask: str,
    *facts: str,
) -> Relation:
    kinds = (subjects,) if isinstance(subjects, Kind) else tuple(subjects)
    return Relation(name, kinds, object, noun, alt, ask, facts)


RELATIONS: tuple[Relation, ...] = (
    _relation(
        "birthplace", Kind.PERSON, Kind.TOWN,
        "the birthplace of {s}", "the town where {s} was born", "Where was {s} born?",
        "{s} has {o} as birthplace.", "The birthplace of {s} is {o}.",
        "{o} is the birthplace of {s}.",
    ),
    _relation(
        "birth_date", Kind.PERSON, Kind.DATE,
        "the birth date of {s}", "the day when {s} was born", "When was {s} born?",
        "{s} has {o} as birth date.", "The birth date of {s} is {o}.",
    ),
    _relation(
        "home", Kind.PERSON, Kind.TOWN,
        "the home town of {s}", "the town where {s} lives", "Where does {s} live?",
        "{s} has {o} as home town.", "The home town of {s} is {o}.", "{o} is the home town of {s}.",
    ),
    _relation(
        "spouse", Kind.PERSON, Kind.PERSON,
        "the spouse of {s}", "the person who married {s}", "Who is married to {s}?",
        "{s} has {o} as spouse.", "The spouse of {s} is {o}.", "{o} is the spouse of {s}.",
    ),
    _relation(
        "teacher", Kind.PERSON, Kind.PERSON,
        "the teacher of {s}", "the person who taught {s}", "Who taught {s}?",
        "{s} had {o} as teacher.", "The teacher of {s} is {o}.", "{o} is the teacher of {s}.",
    ),
    _relation(
        "membership", Kind.PERSON, Kind.ORGANISATION,
        "the organisation of {s}", "the organisation that {s} belongs to",
        "Which organisation is {s} a member of?",
        "{s} has {o} as organisation.", "The organisation of {s} is {o}.",
        "{s} belongs to the organisation {o}.",
    ),
    _relation(
        "author", Kind.BOOK, Kind.PERSON,
        "the author of {s}", "the person who wrote {s}", "Who wrote {s}?",
        "{s} has {o} as its author.", "The author of {s} is {o}.", "{o} is the author of {s}.",
    ),
    _relation(
        "composer", Kind.OPERA, Kind.PERSON,
        "the composer of {s}", "the person who composed {s}", "Who composed {s}?",
        "{s} has {o} as its composer.", "The composer of {s} is {o}.",
        "{o} is the composer of {s}.",
    ),
    _relation(
        "painter", Kind.PAINTING, Kind.PERSON,
        "the painter of {s}", "the person who painted {s}", "Who painted {s}?",
        "{s} has {o} as its painter.", "The painter of {s} is {o}.", "{o} is the painter of {s}.",
    ),
    _relation(
        "publisher", Kind.BOOK, Kind.ORGANISATION,
        "the publisher of {s}", "the organisation that published {s}", "Who published {s}?",
        "{s} has {o} as its publisher.", "The publisher of {s} is {o}.",
        "{o} is the publisher of {s}.",
    ),
    _relation(
        "premiere", Kind.OPERA, Kind.TOWN,
        "the premiere town of {s}", "the town where {s} was first performed",
        "Where was {s} first performed?",
        "{s} had {o} as its premiere town.", "The premiere town of {s} is {o}.",
        "{o} is the premiere town of {s}.",
    ),
    _relation(
        "owner", Kind.PAINTING, Kind.ORGANISATION,
        "the owner of {s}", "the organisation that owns {s}", "Who owns {s}?",
        "{s} has {o} as its owner.", "The owner of {s} is {o}.", "{o} is the owner of {s}.",
    ),
    _relation(
        "finished", _WORKS, Kind.YEAR,
        "the completion year of {s}", "the year when {s} was finished", "When was {s} finished?",
        "{s} has {o} as its completion year.", "The completion year of {s} is {o}.",
    ),
    _relation(
        "mayor", Kind.TOWN, Kind.PERSON,
        "the mayor of {s}", "the person who is the mayor of {s}", "Who is the mayor of {s}?",
        "The mayor of {s} is {o}.", "{o} is the mayor of {s}.", "{s} has {o} as its mayor.",
    ),
    _relation(
        "country", Kind.TOWN, Kind.COUNTRY,
        "the country of {s}", "the country where {s} is located",
        "Which country is {s} located in?",
        "{s} is located in the country {o}.", "The country of {s} is {o}.",
        "{o} is the country of {s}.",
    ),
    _relation(
        "founded", (Kind.TOWN, Kind.ORGANISATION), Kind.YEAR,
        "the founding year of {s}", "the year when {s} was founded", "When was {s} founded?",
        "{s} has {o} as its founding year.", "The founding year of {s} is {o}.",
    ),
    _relation(
        "capital", Kind.COUNTRY, Kind.TOWN,
        "the capital of {s}", "the town that is the capital of {s}", "What is the capital of {s}?",
        "The capital of {s} is {o}.", "{o} is the capital of {s}.", "{s} has {o} as its capital.",
    ),
    _relation(
        "ruler", Kind.COUNTRY, Kind.PERSON,
        "the ruler of {s}", "the person who rules {s}", "Who rules {s}?",
        "{s} has {o} as its ruler.", "The ruler of {s} is {o}.", "{o} is the ruler of {s}.",
    ),
    _relation(
        "founder", Kind.ORGANISATION, Kind.PERSON,
        "the founder of {s}", "the person who founded {s}", "Who founded {s}?",
        "{s} has {o} as its founder.", "The founder of {s} is {o}.", "{o} is the founder of {s}.",
    ),
    _relation(
        "director", Kind.ORGANISATION, Kind.PERSON,
        "the director of {s}", "the person who directs {s}", "Who is the director of {s}?",
        "{s} has {o} as its director.", "The director of {s} is {o}.",
        "{o} is the director of {s}.",
    ),
    _relation(
        "seat", Kind.ORGANISATION, Kind.TOWN,
        "the base town of {s}", "the town where {s} is based", "Where is {s} based?",
        "{s} has {o} as its base town.", "The base town of {s} is {o}.",
        "{o} is the base town of {s}.",
    ),
)  # fmt: skip

BY_NAME: dict[str, Relation] = {relation.name: relation for relation in RELATIONS}


def relations_of(kind: Kind) -> tuple[Relation, ...]:
    """The relations whose subject is a `kind`; none for dates and years."""
    return tuple(relation for relation in RELATIONS if kind in relation.subjects)
