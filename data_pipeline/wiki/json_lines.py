"""Pages from JSON lines: our own form, and KILT's knowledge source."""

import gzip
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote

from data_pipeline.set_aside import SetAside, parse_json
from data_pipeline.wiki.page import Item, Link, SourceError, SourcePage, is_disambiguation


@dataclass(frozen=True)
class _Lines(ABC):
    """One JSON object a line, gzipped or not. `FIELDS`: the title's and the text's name, and the
    type of the text."""

    path: Path
    FIELDS: ClassVar[tuple[str, str, type]]

    def raw(self) -> Iterator[tuple[int, bytes]]:
        path = self.path
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            try:
                yield from ((n, line) for n, line in enumerate(file, 1) if line.strip())
            except (EOFError, OSError, zlib.error) as error:
                raise SourceError(f"{path}: can't be read further ({error})") from error

    def convert(self, raw: tuple[int, bytes]) -> Item:
        number, line = raw
        title_field, text_field, text_type = self.FIELDS
        title: Any = None
        try:
            value = parse_json(line)
            if not isinstance(value, dict):
                raise ValueError(f"not an object but {type(value).__name__}")
            title, text = value.get(title_field), value.get(text_field)
            if not isinstance(title, str) or not isinstance(text, text_type):
                raise ValueError(
                    f"{title_field} must be a str and {text_field} a {text_type.__name__}"
                )
            return self.page(title, text, value)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            reason = str(error) if type(error) is ValueError else f"can't be read: {error!r}"
            return SetAside(self.path.name, number, str(title) if title else None, reason)

    @abstractmethod
    def page(self, title: str, text: Any, value: dict[str, Any]) -> SourcePage: ...


@dataclass(frozen=True)
class JsonPages(_Lines):
    """`{title, text, links: [[start, end, title]]}`, and where known `disambiguation` and
    `revision`."""

    FIELDS = ("title", "text", str)

    def page(self, title: str, text: str, value: dict[str, Any]) -> SourcePage:
        try:
            links = tuple(Link(int(a), int(b), str(t)) for a, b, t in value.get("links") or ())
        except (TypeError, ValueError) as error:
            raise ValueError(f"links must be a list of [start, end, title] ({error})") from None
        disambiguation = bool(value.get("disambiguation", is_disambiguation(title, text)))
        revision = str(value.get("revision") or "")
        return SourcePage(title, text, links, disambiguation, False, revision)


@dataclass(frozen=True)
class Kilt(_Lines):
    """KILT's knowledge source: paragraphs, and anchors in characters of each."""

    FIELDS = ("wikipedia_title", "text", list)

    def page(self, title: str, text: list[Any], value: dict[str, Any]) -> SourcePage:
        # The first paragraph is the title; sections and list items carry marks.
        lines, starts, at = [], {}, 0
        for k, paragraph in enumerate(text):
            line = str(paragraph).strip("\n")
            shown = line
            for mark in ("Section::::", "BULLET::::-"):
                shown = shown.removeprefix(mark)
            shown = shown.strip().removesuffix("." if line.startswith("Section::::") else "")
            if k == 0 and shown == title:
                continue
            starts[k] = (at - line.find(shown), len(shown), line.find(shown))
            lines.append(shown + "\n")
            at += len(lines[-1])
        links = []
        for anchor in value.get("anchors") or ():
            if anchor["paragraph_id"] not in starts:
                continue
            shift, size, first = starts[anchor["paragraph_id"]]
            start, end = int(anchor["start"]), int(anchor["end"])
            if first <= start < end <= first + size:
                links.append(Link(start + shift, end + shift, unquote(str(anchor["href"]))))
        joined = "".join(lines)
        categories = str(value.get("categories") or "").lower()
        disambiguation = "disambiguation pages" in categories or is_disambiguation(title, joined)
        revision = str((value.get("history") or {}).get("timestamp") or "")
        return SourcePage(title, joined, tuple(links), disambiguation, False, revision)
