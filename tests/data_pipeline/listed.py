"""What tests of the page store share: sources that a test lists, dumps that it writes."""

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_pipeline.wiki.build import build_pages
from data_pipeline.wiki.page import Item
from data_pipeline.wiki.sources import Source, open_source


@dataclass(frozen=True)
class Listed:
    """A source of what a test says; `dies_at` stands for a kill after so many items."""

    items: tuple[Item, ...]
    path: Path = Path("listed")
    dies_at: int | None = None

    def raw(self) -> Iterator[Item]:
        for k, item in enumerate(self.items):
            if k == self.dies_at:
                raise KeyboardInterrupt
            yield item

    def convert(self, raw: Item) -> Item:
        return raw


def build(path: Path, *sources: Source, max_chars: int = 10_000) -> dict[str, int]:
    return build_pages(path, sources, tokenizer="words", max_chars=max_chars)


def rows(path: Path, table: str) -> list[Any]:
    return sqlite3.connect(path).execute(f"SELECT * FROM {table} ORDER BY 1, 2, 3").fetchall()


def converted(kind: str, path: Path) -> list[Item]:
    source = open_source({"kind": kind, "path": str(path)})
    return [source.convert(raw) for raw in source.raw()]


def xml(*pages: bytes) -> bytes:
    return b"<mediawiki>" + b"".join(pages) + b"</mediawiki>"


def article(title: str, text: bytes, rest: str = "<ns>0</ns>") -> bytes:
    head = f"<page><title>{title}</title>{rest}<revision><timestamp>2016</timestamp><text>"
    return head.encode() + text + b"</text></revision></page>"
