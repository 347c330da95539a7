"""Where pages come from: a source streams raw records, cheap to skip, and converts each."""

import gzip
import importlib
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote

from data_pipeline.musique_records import Record, read_records
from data_pipeline.wiki.page import (
    Item,
    Link,
    Redirect,
    Rejected,
    SourceError,
    SourcePage,
    is_disambiguation,
)


class Source(Protocol):
    """`raw` yields in the same order each time, so that a build goes on by skipping."""

    @property
    def path(self) -> Path: ...

    def raw(self) -> Iterator[Any]:
        """The records as they stand. Raises `SourceError` where the rest can't be read."""
        ...

    def convert(self, raw: Any) -> Item: ...


@dataclass(frozen=True)
class JsonPages:
    """JSON lines, gzipped or not: `{title, text, links: [[start, end, title]]}`."""

    path: Path

    def raw(self) -> Iterator[tuple[int, bytes]]:
        return _lines(self.path)

    def convert(self, raw: tuple[int, bytes]) -> Item:
        number, value = _parse(raw)
        if isinstance(value, Rejected):
            return value
        title, text = value.get("title"), value.get("text")
        if not isinstance(title, str) or not isinstance(text, str):
            return Rejected(f"line {number}", str(title or ""), "title and text must be texts")
        links = tuple(Link(int(a), int(b), str(t)) for a, b, t in value.get("links", ()))
        disambiguation = bool(value.get("disambiguation", is_disambiguation(title, text)))
        return SourcePage(
            title, text, links, disambiguation, False, str(value.get("revision") or "")
        )


@dataclass(frozen=True)
class Kilt:
    """KILT's knowledge source: JSON lines with paragraphs and anchors in characters of each."""

    path: Path

    def raw(self) -> Iterator[tuple[int, bytes]]:
        return _lines(self.path)

    def convert(self, raw: tuple[int, bytes]) -> Item:
        number, value = _parse(raw)
        if isinstance(value, Rejected):
            return value
        title, paragraphs = value.get("wikipedia_title"), value.get("text")
        if not isinstance(title, str) or not isinstance(paragraphs, list):
            reason = "wikipedia_title must be a text and text a list"
            return Rejected(f"line {number}", str(title or ""), reason)
        # The first paragraph is the title; sections and list items carry marks.
        lines, starts, at = [], {}, 0
        for k, paragraph in enumerate(paragraphs):
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
        text = "".join(lines)
        categories = str(value.get("categories") or "").lower()
        disambiguation = "disambiguation pages" in categories or is_disambiguation(title, text)
        revision = str((value.get("history") or {}).get("timestamp") or "")
        return SourcePage(title, text, tuple(links), disambiguation, False, revision)


@dataclass(frozen=True)
class Redirects:
    """A JSON object, title to title."""

    path: Path

    def raw(self) -> Iterator[tuple[str, Any]]:
        try:
            value = json.loads(self.path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise SourceError(f"{self.path}: not JSON ({error})") from error
        if not isinstance(value, dict):
            raise SourceError(f"{self.path}: must be an object, title to title")
        yield from value.items()

    def convert(self, raw: tuple[str, Any]) -> Item:
        return Redirect(raw[0], str(raw[1]))


@dataclass(frozen=True)
class Excerpts:
    """Paragraphs grouped by title, each once: of MuSiQue records, or a list of `{title, text}`.

    Such a page is marked as an excerpt. All paragraphs are held in memory meanwhile.
    """

    path: Path

    def raw(self) -> Iterator[tuple[str, list[str]]]:
        pages: dict[str, dict[str, None]] = {}
        for title, text in self._paragraphs():
            pages.setdefault(title, {})[text] = None
        yield from ((title, list(texts)) for title, texts in pages.items())

    def _paragraphs(self) -> Iterator[tuple[str, str]]:
        with self.path.open("rb") as file:
            grouped = b'"paragraphs"' not in file.read(2**16)
        if grouped:
            try:
                for item in json.loads(self.path.read_text(encoding="utf-8")):
                    yield str(item["title"]), str(item["text"])
            except (ValueError, KeyError, TypeError) as error:
                raise SourceError(
                    f"{self.path}: not a list of title and text ({error!r})"
                ) from None
            return
        for record in read_records(self.path):
            if isinstance(record, Record):
                yield from ((p.title, p.text) for p in record.paragraphs)

    def convert(self, raw: tuple[str, list[str]]) -> Item:
        text = "\n".join(raw[1])
        return SourcePage(raw[0], text, (), is_disambiguation(raw[0], text), True)


_READERS = {"dump": "mwparserfromhell", "zim": "libzim.reader"}  # of the extra [wiki]


def open_source(about: Mapping[str, Any]) -> Source:
    """The source of `{kind, path}`. Raises `ValueError` for an unknown kind, a missing file, or a
    reader that isn't installed."""
    from data_pipeline.wiki.dump import Dump
    from data_pipeline.wiki.zim import Zim

    kinds: dict[str, Callable[[Path], Source]] = {
        "pages": JsonPages,
        "kilt": Kilt,
        "redirects": Redirects,
        "excerpts": Excerpts,
        "dump": Dump,
        "zim": Zim,
    }
    kind, path = str(about.get("kind")), about.get("path")
    if kind not in kinds or not path:
        raise ValueError(f"a source is {{kind, path}} with kind of {list(kinds)}, not {about!r}")
    path = Path(str(path))
    if not path.is_file() and not Path(f"{path}aa").is_file():  # a ZIM may be split
        raise ValueError(f"pages.sources: {path}: no such file")
    if reader := _READERS.get(kind):
        try:
            importlib.import_module(reader)
        except ImportError as error:
            raise ValueError(
                f"pages.sources: {path}: reading a {kind} needs {reader.partition('.')[0]} "
                f"({error}): pip install 'disco-rl[wiki]'"
            ) from error
    return kinds[kind](path)


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
        try:
            yield from ((n, line) for n, line in enumerate(file, 1) if line.strip())
        except (EOFError, OSError, zlib.error) as error:
            raise SourceError(f"{path}: can't be read further ({error})") from error


def _parse(raw: tuple[int, bytes]) -> tuple[int, Any]:
    number, line = raw
    place = f"line {number}"
    try:
        value = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        return number, Rejected(place, "", f"not UTF-8 at byte {error.start} of the line")
    except (ValueError, RecursionError) as error:
        return number, Rejected(place, "", f"not JSON: {error}")
    if not isinstance(value, dict):
        return number, Rejected(place, "", f"not an object but {type(value).__name__}")
    return number, value
