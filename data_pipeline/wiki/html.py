"""HTML of a Kiwix page to plain text with link offsets."""

import re
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

from data_pipeline.wiki.page import Link, replace_spans

_SKIPPED = re.compile("script|style|table|sup|head|figure|figcaption|math|noscript")
_BLOCKS = re.compile("p|h[1-6]|li|div|ul|ol|d[ldt]|br|section|blockquote|summary")
_TIDY = (
    (re.compile(r"[ \t\u00a0\u200b]+"), " "),
    (re.compile(r" ?\n\s*"), "\n"),
    (re.compile(r"\A\s+"), ""),
    (re.compile(r"(?s)\n?This article is issued from .{0,300}\Z"), ""),  # Kiwix's own last words
)


def to_text(html: str, title: str) -> tuple[str, tuple[Link, ...]]:
    """The plain text without its heading `title`, and its links to other pages by title."""
    parser = _Parser()
    parser.feed(html)
    parser.close()
    text, links = "".join(parser.parts), tuple(parser.links)
    for pattern, by in (*_TIDY, (re.compile(rf"\A{re.escape(title)}\n"), "")):
        text, links = replace_spans(text, links, pattern, by)
    return text, links


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.links: list[Link] = []
        self._size = 0
        self._skipped: list[str] = []
        self._link: tuple[int, str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if _SKIPPED.fullmatch(tag):
            self._skipped.append(tag)
        elif _BLOCKS.fullmatch(tag):
            self._add("\n")
        elif tag == "a":
            self._link = (self._size, _title(dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if _SKIPPED.fullmatch(tag):
            # Unclosed tags inside end with it.
            while self._skipped and self._skipped.pop() != tag:
                pass
        elif _BLOCKS.fullmatch(tag):
            self._add("\n")
        elif tag == "a" and self._link is not None:
            start, title = self._link
            if title and start < self._size:
                self.links.append(Link(start, self._size, title))
            self._link = None

    def handle_data(self, data: str) -> None:
        self._add(re.sub(r"\s+", " ", data))

    def _add(self, text: str) -> None:
        if not self._skipped:
            self.parts.append(text)
            self._size += len(text)


def _title(attributes: dict[str, str | None]) -> str:
    """The title that a link within the ZIM leads to; empty for others."""
    href = attributes.get("href") or ""
    try:
        parts = urlsplit(href)
    except ValueError:  # such as half an IPv6 address
        return ""
    if parts.scheme or parts.netloc or not parts.path or "/I/" in parts.path:
        return ""
    return attributes.get("title") or unquote(parts.path.rpartition("/")[2]).removesuffix(".html")
