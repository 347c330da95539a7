"""The offline linker: names in a text that are titles of the page store, checked for homonyms."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from data_pipeline.wiki.page import Link, title_key
from data_pipeline.wiki.store import PageStore
from disco_rl.engine.workers.lexical import terms

_WORD = re.compile(r"\w[\w'’.\-]*\w|\w")
_MAX_WORDS = 6
_PAGES_CACHED = 4096
_LEAD = 600  # characters of a page that say what it is about
_JOINING = re.compile("of|the|and|in|de|la|le|du|von|van|der|del|di|da|for|on|at|to")

_STOP_WORDS = """
This That These Those There Here It He She They We You I His Her Their Its The A An In On At By
For From With After Before During While When Where Who What Why How And Or But If As Since Both
Each Many Most Some All Other Another One Two Three Four Five Six Seven Eight Nine Ten First Second
Third Red Blue Green White Black January February March April May June July August September
October November December Monday Tuesday Wednesday Thursday Friday Saturday Sunday Answer Summary
Alien Adventure Also However Although Today Now Then Part
"""
STOP_TITLES = tuple(_STOP_WORDS.split())
"""Titles that are hardly ever what a text means by the word."""


@dataclass
class Linker:
    """Longest names first; a name must share words with the lead of the page it is linked to.

    `min_shared` of them for a name of one word, one less for a longer name. Among the pages of a
    disambiguation the one that shares most is taken, if it is a single one.
    """

    store: PageStore
    stop_titles: Sequence[str] = STOP_TITLES
    min_shared: int = 2
    page_links: Callable[[int], tuple[Link, ...]] = field(init=False)
    _stop: frozenset[str] = field(init=False)
    _leads: dict[int, frozenset[str]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._stop = frozenset(title_key(title) for title in self.stop_titles)
        self.page_links = lru_cache(_PAGES_CACHED)(self._page_links)

    def stops(self, key: str) -> bool:
        """Whether the title with this key is one never to link to."""
        return key in self._stop

    def link(self, text: str, start: int = 0) -> tuple[Link, ...]:
        """Disjoint mentions in `text` from character `start` on, in order."""
        words = [m.span() for m in _WORD.finditer(text, start)]
        around = frozenset(terms(text))
        links: list[Link] = []
        at = 0
        while at < len(words):
            taken = 1
            if _names(text, words[at]):
                for n in range(min(_MAX_WORDS, len(words) - at), 0, -1):
                    found = self._mention(text, words[at : at + n], around)
                    if found is not None:
                        links.append(found)
                        taken = n
                        break
            at += taken
        return tuple(links)

    def _page_links(self, id: int) -> tuple[Link, ...]:
        """Mentions in a page of the store, for those whose source has no links."""
        return self.link(self.store.text(id), len(self.store.page(id).title) + 1)

    def _mention(
        self, text: str, words: Sequence[tuple[int, int]], around: frozenset[str]
    ) -> Link | None:
        if not _names(text, words[-1]):
            return None
        if any(
            not _JOINING.fullmatch(text[a:b]) and not _names(text, (a, b)) for a, b in words[1:-1]
        ):
            return None
        start, end = words[0][0], words[-1][1]
        surface = text[start:end]
        if "\n" in surface or ". " in surface:
            return None
        for name in dict.fromkeys((surface, re.sub(r"(?:['’]s|['’.])$", "", surface))):
            key = title_key(name)
            id = None if key in self._stop else self.store.find(key)
            if id is None:
                continue
            if len(words) == 1 and _begins_sentence(text, start) and name.lower() in text:
                continue  # an ordinary word that opens a sentence
            wanted = self.min_shared - (len(words) > 1)
            page = self.choose(id, name, around, wanted)
            if page is not None:
                return Link(start, start + len(name), self.store.page(page).title)
        return None

    def choose(self, id: int, name: str, around: frozenset[str], wanted: int) -> int | None:
        """The page that `name` means where the terms `around` stand: page `id`, or one that it
        tells apart. None where fewer than `wanted` terms are shared with that page's lead."""
        around = around - frozenset(terms(name))
        page = self.store.page(id)
        if not page.disambiguation:
            return id if len(around & self._lead(id)) >= wanted else None
        found = {self.store.find(link.title) for link in page.links}
        shared = sorted(
            (len(around & self._lead(one)), one)
            for one in found
            if one is not None and not self.store.page(one).disambiguation
        )
        if not shared or shared[-1][0] < max(wanted, 2):
            return None
        tie = len(shared) > 1 and shared[-2][0] == shared[-1][0]
        return None if tie else shared[-1][1]

    def _lead(self, id: int) -> frozenset[str]:
        if id not in self._leads:
            if len(self._leads) >= _PAGES_CACHED:
                self._leads.clear()
            self._leads[id] = frozenset(terms(self.store.lead(id, _LEAD)))
        return self._leads[id]


def _names(text: str, span: tuple[int, int]) -> bool:
    first = text[span[0]]
    return first.isupper() or (first.isdigit() and span[1] - span[0] == 4)


def _begins_sentence(text: str, at: int) -> bool:
    before = text[:at].rstrip(" \"'“(")
    return not before or before[-1] in ".!?\n"
