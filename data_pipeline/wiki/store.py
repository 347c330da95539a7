"""The page store: one SQLite file, title to page, redirects followed.

`titles` is a small tree of its own, so that a look-up never reads a page's body; the body's columns
stand last in `pages`, so that the numbers before them are read alone.
"""

import json
import sqlite3
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from data_pipeline.set_aside import SetAside
from data_pipeline.wiki.page import Link, title_key

FORMAT_VERSION = 2
MAX_REDIRECTS = 8
_CACHE_KIB = 64 * 1024
_TITLES_CACHED = 200_000
_PAGES_CACHED = 512

SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE titles (key TEXT PRIMARY KEY, page INTEGER, target TEXT) WITHOUT ROWID;
CREATE TABLE pages (
    id INTEGER PRIMARY KEY, title TEXT NOT NULL, n_tokens INTEGER NOT NULL,
    disambiguation INTEGER NOT NULL, excerpt INTEGER NOT NULL, revision TEXT NOT NULL,
    links BLOB NOT NULL, sentences BLOB NOT NULL, text BLOB NOT NULL
);
CREATE TABLE rejected (source INTEGER, file TEXT, line INTEGER, id TEXT, reason TEXT);
"""


class PageStoreError(ValueError):
    """A page store that is missing, unfinished, foreign, or counted with another tokenizer."""


@dataclass(frozen=True, slots=True, eq=False)
class Page:
    """A page without its body. `links` are in characters of its text.

    `ends` are the ends of its sentences in characters of its text, `counts` the tokens that begin
    in each: two int64 arrays of one length. Their sum is `n_tokens`.
    """

    id: int
    title: str
    n_tokens: int
    disambiguation: bool
    excerpt: bool
    revision: str
    links: tuple[Link, ...]
    ends: np.ndarray
    counts: np.ndarray


class PageStore:
    """A finished store, read only; memory is bounded by SQLite's cache and two small ones of ours.

    Pickles as its path, so that processes share it. Raises `PageStoreError`.
    """

    def __init__(self, path: str | Path, *, tokenizer: str | None = None):
        self.path = Path(path)
        if not self.path.is_file():
            raise PageStoreError(
                f"{self.path}: no such page store; build it with `python -m data_pipeline pages`"
            )
        self._db = sqlite3.connect(
            f"{self.path.resolve().as_uri()}?mode=ro", uri=True, check_same_thread=False
        )
        try:
            self._check(tokenizer)
        except PageStoreError:
            self._db.close()
            raise
        self.find = lru_cache(_TITLES_CACHED)(self._find)
        self.page = lru_cache(_PAGES_CACHED)(self._page)

    def _check(self, tokenizer: str | None) -> None:
        try:
            self._db.execute(f"PRAGMA cache_size=-{_CACHE_KIB}")
            self.meta = read_meta(self._db)
        except sqlite3.DatabaseError as error:
            raise PageStoreError(
                f"{self.path}: not a page store ({error}); remove it and build it anew"
            ) from error
        if self.meta.get("version") != FORMAT_VERSION or not self.meta.get("complete"):
            raise PageStoreError(
                f"{self.path}: its build isn't complete, or of another version; "
                "run `python -m data_pipeline pages` again, it goes on where it stopped"
            )
        counted = self.meta["settings"]["tokenizer"]
        if tokenizer is not None and tokenizer != counted:
            raise PageStoreError(
                f"{self.path}: its tokens are counted with {counted!r}, not {tokenizer!r}; "
                "build it anew in another place"
            )

    def __reduce__(self) -> tuple[type["PageStore"], tuple[Path]]:
        return (PageStore, (self.path,))

    def __len__(self) -> int:
        return int(self._db.execute("SELECT COUNT(*) FROM pages").fetchone()[0])

    def close(self) -> None:
        self._db.close()

    def _find(self, title: str) -> int | None:
        """The id of the page of that title, redirects followed; None where there is none.

        A redirect that leads round in a circle, or on for too long, leads nowhere.
        """
        key = title_key(title)
        for _ in range(MAX_REDIRECTS):
            row = self._db.execute("SELECT page, target FROM titles WHERE key=?", (key,)).fetchone()
            if row is None:
                return None
            if row[0] is not None:
                return int(row[0])
            key = title_key(row[1])
        return None

    def _page(self, id: int) -> Page:
        """Raises `KeyError` for an id that isn't there."""
        row = self._db.execute(
            "SELECT title, n_tokens, disambiguation, excerpt, revision, links, sentences "
            "FROM pages WHERE id=?",
            (id,),
        ).fetchone()
        if row is None:
            raise KeyError(f"{self.path}: no page {id}")
        links = tuple(Link(*link) for link in json.loads(zlib.decompress(row[5])))
        ends, counts = np.frombuffer(zlib.decompress(row[6]), np.uint32).reshape(2, -1)
        return Page(
            id,
            row[0],
            row[1],
            bool(row[2]),
            bool(row[3]),
            row[4],
            links,
            ends.astype(np.int64),
            counts.astype(np.int64),
        )

    def text(self, id: int) -> str:
        """The page as it is inserted: its title's line, its body, an empty line."""
        row = self._db.execute("SELECT text FROM pages WHERE id=?", (id,)).fetchone()
        if row is None:
            raise KeyError(f"{self.path}: no page {id}")
        return zlib.decompress(row[0]).decode("utf-8")

    def lead(self, id: int, size: int = 600) -> str:
        """The first characters of the page's text."""
        return self.text(id)[:size]

    def set_aside(self) -> Iterator[SetAside]:
        """What the sources held and can't be used, in their order."""
        rows = self._db.execute("SELECT file, line, id, reason FROM rejected ORDER BY rowid")
        yield from (SetAside(*row) for row in rows)


def read_meta(db: sqlite3.Connection) -> dict[str, Any]:
    return {key: json.loads(value) for key, value in db.execute("SELECT key, value FROM meta")}
