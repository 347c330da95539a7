"""What an adapter yields: pages, redirects, and what it had to set aside."""

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from data_pipeline.set_aside import SetAside

_BLANKS = re.compile(r"[\s_]+")
_MAY_REFER = re.compile(r"\b(?:may|can|might|could)(?: also)? (?:refer|stand) (?:to|for)\b")


@dataclass(frozen=True, slots=True)
class Link:
    """Characters `start:end` of a page's text link to `title`."""

    start: int
    end: int
    title: str


@dataclass(frozen=True, slots=True)
class SourcePage:
    """A page as its source has it. `excerpt`: some paragraphs of the page, not the whole.

    `revision` is the date of the text, ISO 8601, or empty where the source doesn't say.
    """

    title: str
    text: str
    links: tuple[Link, ...] = ()
    disambiguation: bool = False
    excerpt: bool = False
    revision: str = ""


@dataclass(frozen=True, slots=True)
class Redirect:
    title: str
    target: str


Item = SourcePage | Redirect | SetAside

MAX_SOURCE_SIZE = 8 * 2**20
"""Of a page's markup; Wikipedia's own limit is 2 MB. Parsing a longer one takes minutes and
gigabytes."""


class SourceError(ValueError):
    """A source can't be read further; what came before it stands."""


def title_key(title: str) -> str:
    """How titles are compared, as MediaWiki does: blanks for underscores, first letter in capital,
    no #section."""
    title = _BLANKS.sub(" ", title.partition("#")[0]).strip(" :")
    return title[:1].upper() + title[1:]


def too_long(size: int) -> str | None:
    """Why a page with so many characters or bytes of markup isn't parsed."""
    return f"{size:,} of markup, over {MAX_SOURCE_SIZE:,}" if size > MAX_SOURCE_SIZE else None


def is_disambiguation(title: str, text: str) -> bool:
    """By its title or its opening words, for sources that don't say."""
    return title.endswith("(disambiguation)") or bool(_MAY_REFER.search(text[:300]))


def replace_spans(
    text: str, links: Sequence[Link], pattern: re.Pattern[str], by: str
) -> tuple[str, tuple[Link, ...]]:
    """`pattern.sub(by, text)`, `by` taken literally, with the links moved along.

    A link that loses all its text is left out.
    """
    parts: list[str] = []
    starts, ends, news = [], [], []  # of the matches, and where each replacement ends
    at = new = 0
    for match in pattern.finditer(text):
        parts += text[at : match.start()], by
        new += match.start() - at + len(by)
        at = match.end()
        starts.append(match.start())
        ends.append(at)
        news.append(new)
    parts.append(text[at:])

    def moved(place: int) -> int:
        k = bisect_left(starts, place) - 1
        return place if k < 0 else news[k] + max(place - ends[k], 0)

    links = [Link(moved(link.start), moved(link.end), link.title) for link in links]
    return "".join(parts), tuple(link for link in links if link.start < link.end)
