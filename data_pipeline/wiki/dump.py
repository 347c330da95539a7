"""MediaWiki XML dumps, plain or bz2, streamed."""

import bz2
import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

from data_pipeline.set_aside import SetAside
from data_pipeline.wiki.page import Item, Redirect, SourceError, SourcePage, too_long

_BLOCK = 2**18


class RawPage(NamedTuple):
    title: str
    redirect: str | None
    text: str
    revision: str


@dataclass(frozen=True)
class Dump:
    """`pages-articles` as Wikimedia publishes it; pages outside the article namespace are passed
    over. Memory is one page's."""

    path: Path

    def raw(self) -> Iterator[RawPage]:
        parser: Any = ElementTree.XMLPullParser(("start", "end"))
        # Bad bytes become U+FFFD, so that they cost their page and not the rest of the dump.
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        root, ended = None, False
        with bz2.open(self.path) if self.path.suffix == ".bz2" else self.path.open("rb") as file:
            try:
                while not ended:
                    block = file.read(_BLOCK)
                    ended = not block
                    parser.feed(decoder.decode(block, final=ended))
                    for event, element in parser.read_events():
                        if root is None:
                            root = element
                        if event == "end" and _name(element) == "page":
                            page = _page(element)
                            root.clear()
                            if page is not None:
                                yield page
                parser.close()
            except (EOFError, OSError, ElementTree.ParseError) as error:
                raise SourceError(
                    f"{self.path}: can't be read further ({error}); it is cut off or broken there, "
                    "fetch it again"
                ) from error

    def convert(self, raw: RawPage) -> Item:
        from data_pipeline.wiki.wikitext import to_text

        if raw.redirect is not None:
            return Redirect(raw.title, raw.redirect)
        if reason := too_long(len(raw.text)):
            return SetAside(self.path.name, None, raw.title, reason)
        if "\ufffd" in raw.text:
            return SetAside(self.path.name, None, raw.title, "holds bytes that aren't UTF-8")
        text, links, disambiguation = to_text(raw.text)
        disambiguation = disambiguation or raw.title.endswith("(disambiguation)")
        return SourcePage(raw.title, text, links, disambiguation, False, raw.revision)


def _name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _page(element: ElementTree.Element) -> RawPage | None:
    """None for what is no article: talk, templates, categories."""
    found = {_name(child): child for child in element.iter()}
    get = {name: (child.text or "") for name, child in found.items()}
    if get.get("ns", "0") != "0":
        return None
    redirect = found.get("redirect")
    return RawPage(
        get.get("title", ""),
        None if redirect is None else redirect.get("title", ""),
        get.get("text", ""),
        get.get("timestamp", ""),
    )
