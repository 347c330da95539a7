"""Sentences that state no fact of the relation table: padding between the facts of a page."""

import random
import re

from data_pipeline.world.relations import RELATIONS, Kind

_SLOTS: dict[str, tuple[str, ...]] = {
    "season": ("spring", "summer", "autumn", "winter"),
    "thing": ("bell", "lamp", "ladder", "wagon", "carpet", "kettle", "drum", "barrel", "mirror"),
    "colour": ("red", "green", "grey", "yellow", "white", "brown", "blue"),
    "trade": ("salt", "wool", "timber", "honey", "copper", "barley", "glass", "linen"),
    "people": (
        "farmers",
        "sailors",
        "weavers",
        "carpenters",
        "children",
        "merchants",
        "travellers",
    ),
    "weather": ("rain", "fog", "frost", "wind", "snow", "sunshine", "thunder"),
    "animal": ("herons", "goats", "foxes", "swallows", "horses", "owls", "bees"),
    "feeling": ("proud", "tired", "curious", "cheerful", "careful", "patient"),
    "when": ("every week", "once a month", "at dawn", "in the evening", "after the harvest"),
    "many": ("few", "several", "many", "some"),
}

_ANYWHERE: tuple[str, ...] = (
    "The {people} speak of the {weather} with respect.",
    "A {colour} {thing} is shown to visitors {when}.",
    "In {season} the {weather} keeps the {people} indoors.",
    "The price of {trade} rose sharply that {season}.",
    "There are {many} {animal} near the {colour} gate.",
    "The {people} sell {trade} and {trade} {when}.",
    "Nobody recalls why the {thing} is {colour}.",
    "After the {weather} the {people} were {feeling}.",
    "An old {thing} stands beside the {colour} door.",
    "The {animal} return each {season}.",
)

_ABOUT: dict[Kind, tuple[str, ...]] = {
    Kind.PERSON: (
        "{s} was {feeling} for most of the {season}.",
        "{s} kept a {colour} {thing} and {many} {animal}.",
        "{s} liked the {weather} of {season}.",
        "{s} once met {m} by chance.",
        "{s} wrote {many} postcards to {m}.",
    ),
    Kind.TOWN: (
        "{s} is known for its {trade} and its {weather}.",
        "The {people} of {s} are {feeling}.",
        "{s} has a market for {trade}.",
        "A road leads from {s} towards {m}.",
    ),
    Kind.COUNTRY: (
        "{s} sends {trade} abroad in {season}.",
        "The flag of {s} is {colour} and {colour}.",
        "{s} once quarrelled over {trade} with {m}.",
    ),
    Kind.BOOK: (
        "{s} describes {animal} and {weather} at length.",
        "Readers found {s} {feeling} in tone.",
        "{s} mentions {m} in a footnote.",
    ),
    Kind.OPERA: (
        "{s} needs a {colour} {thing} on the stage.",
        "The chorus of {s} sings of {trade}.",
        "{s} was compared with {m} by critics.",
    ),
    Kind.PAINTING: (
        "{s} shows {animal} under {colour} clouds.",
        "The frame of {s} is {colour}.",
        "{s} once hung beside {m} for a {season}.",
    ),
    Kind.ORGANISATION: (
        "{s} collects every {thing} it can find.",
        "{s} gives a prize for {trade} each {season}.",
        "{s} exchanged letters with {m}.",
    ),
}

_SLOT = re.compile(r"\{(\w+)\}")


def filler(rng: random.Random, kind: Kind, subject: str, mention: str) -> str:
    """A sentence for the page of `subject`, now and then naming another page, `mention`."""
    template = rng.choice(_ABOUT[kind] if rng.random() < 0.4 else _ANYWHERE)
    names = {"s": subject, "m": mention}
    return _SLOT.sub(lambda slot: names.get(slot[1]) or rng.choice(_SLOTS[slot[1]]), template)


def reserved_words() -> frozenset[str]:
    """Lower-case words of all templates: no made-up name may equal one."""
    texts = [*_ANYWHERE, *(t for ts in _ABOUT.values() for t in ts)]
    texts += [word for words in _SLOTS.values() for word in words]
    for relation in RELATIONS:
        texts += [relation.noun, relation.alt, relation.ask, *relation.facts]
    return frozenset(re.findall(r"[a-z]+", " ".join(texts).lower()))
