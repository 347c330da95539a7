"""Names made of syllables. All splits share the syllables, and no two splits share a word."""

import hashlib
import itertools
import random
from collections.abc import Iterable
from dataclasses import dataclass

from data_pipeline.world.relations import Kind

SPLITS = ("train", "validation", "test")

# fmt: off
SYLLABLES: tuple[str, ...] = (
    "ba", "be", "bi", "bo", "bu", "da", "de", "di", "do", "du", "fa", "fe", "fi", "fo", "ga",
    "go", "gu", "ha", "he", "hi", "ja", "je", "jo", "ju", "ka", "ke", "ko", "ku", "la", "le",
    "li", "lo", "lu", "ma", "me", "mi", "mo", "mu", "na", "ne", "no", "nu", "pa", "pi", "po",
    "ra", "re", "ri", "ro", "ru", "sa", "se", "si", "so", "su", "ta", "te", "ti", "to", "tu",
    "va", "ve", "vi", "vo", "vu", "za", "ze", "zo", "zu", "bar", "bel", "bin", "bor", "dal",
    "den", "dor", "dun", "fal", "fen", "fir", "for", "gar", "gel", "gor", "hal", "hel", "hin",
    "jar", "jen", "jor", "kal", "kel", "kin", "kor", "lan", "len", "lin", "lor", "mal", "mar",
    "mel", "mir", "mor", "nal", "nar", "nel", "nim", "nor", "pal", "par", "pel", "pin", "por",
    "ran", "rel", "rin", "ros", "sal", "sar", "sel", "sim", "sor", "tal", "tar", "tel", "tes",
    "tin", "tor", "val", "var", "vel", "ves", "vin", "vor", "zan", "zel", "zim", "zor", "bri",
    "dra", "glo", "kra", "kri", "plo", "tra", "tri", "vra", "sta", "ski",
)
# fmt: on

NOUNS: dict[Kind, tuple[str, ...]] = {
    Kind.BOOK: ("Letters", "Chronicle", "Diary", "Fables", "Almanac"),
    Kind.OPERA: ("Wedding", "Feast", "Crown", "Masquerade", "Return"),
    Kind.PAINTING: ("Harbour", "Garden", "Portrait", "Orchard", "Bridge"),
    Kind.ORGANISATION: ("Institute", "Guild", "Academy", "Society", "Museum"),
}
"""The last word of the names of works (`The Minolu Letters`) and organisations (`Kelmar Guild`)."""

_SHORT_TRIES = 30
"""Words of two syllables are tried this often before one of three: a small model copies short
names best, and a large world needs more names than two syllables give."""

Word = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Name:
    """A name as syllables by word, so that a near-duplicate can change exactly one of them."""

    kind: Kind
    words: tuple[Word, ...]
    noun: str = ""

    def __str__(self) -> str:
        parts = ["".join(word).capitalize() for word in self.words]
        if self.kind in (Kind.BOOK, Kind.OPERA, Kind.PAINTING):
            parts.insert(0, "The")
        return " ".join([*parts, self.noun] if self.noun else parts)


def split_of(word: str) -> str:
    """The only split whose names may use `word`: 8 in 10 words are for training, one in ten each
    for validation and test. It depends on nothing but the word, so worlds of any two seeds keep
    the splits apart."""
    bucket = hashlib.blake2b(word.lower().encode(), digest_size=4).digest()[0] % 10
    return {0: "validation", 1: "test"}.get(bucket, "train")


class NameMaker:
    """Makes the names of one context: no made-up word stands within another.

    `taken` holds the full names of the whole split and is added to. `reserved` are words of the
    page text that no name may equal.
    """

    def __init__(self, rng: random.Random, split: str, taken: set[str], reserved: Iterable[str]):
        if split not in SPLITS:
            raise ValueError(f"split must be one of {', '.join(SPLITS)}, not {split!r}")
        self._rng = rng
        self._split = split
        self._taken = taken
        self._reserved = frozenset(reserved)
        self._words: set[str] = set()
        self._parts: set[str] = set()  # every substring of every word

    def make(self, kind: Kind) -> Name:
        """A new name for an entity of `kind`."""
        noun = self._rng.choice(NOUNS[kind]) if kind in NOUNS else ""
        for attempt in itertools.count():
            word = tuple(self._rng.choices(SYLLABLES, k=2 if attempt < _SHORT_TRIES else 3))
            if self._free(word):
                name = Name(kind, (word,), noun)
                if self._admit(name, name.words):
                    return name
        raise AssertionError("unreachable: the count has no end")

    def twin(self, name: Name) -> Name:
        """A near-duplicate of `name`: one syllable of one word differs."""
        for attempt in itertools.count():
            which = self._rng.randrange(len(name.words))
            word = list(name.words[which])
            at = self._rng.randrange(len(word))
            # Where the names with one other syllable are used up, two take its place.
            word[at : at + 1] = self._rng.choices(SYLLABLES, k=1 if attempt < 500 else 2)
            if not self._free(tuple(word)):
                continue
            words = (*name.words[:which], tuple(word), *name.words[which + 1 :])
            twin = Name(name.kind, words, name.noun)
            if self._admit(twin, (tuple(word),)):
                return twin
        raise AssertionError("unreachable: the count has no end")

    def _free(self, word: Word) -> bool:
        text = "".join(word)
        return (
            split_of(text) == self._split
            and text not in self._reserved
            and text not in self._parts
            and self._words.isdisjoint(_substrings(text))
        )

    def _admit(self, name: Name, new_words: Iterable[Word]) -> bool:
        if str(name) in self._taken:
            return False
        self._taken.add(str(name))
        for word in new_words:
            text = "".join(word)
            self._words.add(text)
            self._parts.update(_substrings(text))
        return True


def _substrings(text: str) -> set[str]:
    return {text[i:j] for i in range(len(text)) for j in range(i + 1, len(text) + 1)}
