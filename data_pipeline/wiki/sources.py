"""Where pages come from: a source streams raw records, cheap to skip, and converts each."""

import importlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from data_pipeline.musique_records import Record, read_records
from data_pipeline.set_aside import SetAside
from data_pipeline.wiki.page import Item, Redirect, SourceError, SourcePage, is_disambiguation


class Source(Protocol):
    """`raw` yields in the same order each time, so that a build goes on by skipping."""

    @property
    def path(self) -> Path: ...

    def raw(self) -> Iterator[Any]:
        """The records as they stand. Raises `SourceError` where the rest can't be read."""
        ...

    def convert(self, raw: Any) -> Item: ...


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

    def raw(self) -> Iterator[tuple[str, list[str]] | SetAside]:
        pages: dict[str, dict[str, None]] = {}
        for one in self._paragraphs():
            if isinstance(one, SetAside):
                yield one
            else:
                pages.setdefault(one[0], {})[one[1]] = None
        yield from ((title, list(texts)) for title, texts in pages.items())

    def _paragraphs(self) -> Iterator[tuple[str, str] | SetAside]:
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
        try:
            for record in read_records(self.path):
                if isinstance(record, Record):
                    yield from ((p.title, p.text) for p in record.paragraphs)
                else:
                    yield record
        except ValueError as error:
            raise SourceError(str(error)) from error

    def convert(self, raw: tuple[str, list[str]] | SetAside) -> Item:
        if isinstance(raw, SetAside):
            return raw
        text = "\n".join(raw[1])
        return SourcePage(raw[0], text, (), is_disambiguation(raw[0], text), True)


_READERS = {"dump": "mwparserfromhell", "zim": "libzim.reader"}  # of the extra [wiki]


def open_source(about: Mapping[str, Any]) -> Source:
    """The source of `{kind, path}`. Raises `ValueError` for an unknown kind, a missing file, or a
    reader that isn't installed."""
    from data_pipeline.wiki.dump import Dump
    from data_pipeline.wiki.json_lines import JsonPages, Kilt
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
