"""Builds a page store: streaming, in one transaction a batch, so that a killed build goes on."""

import json
import sqlite3
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from data_pipeline.set_aside import SURROGATES, SetAside, has_surrogates, printable
from data_pipeline.tokens import TokenStarts, pieces_of, token_starts
from data_pipeline.wiki.page import Item, Redirect, SourceError, SourcePage, title_key
from data_pipeline.wiki.sources import Source
from data_pipeline.wiki.store import FORMAT_VERSION, SCHEMA, read_meta
from disco_rl.core.text import sentence_spans

_BATCH = 256
# Titles come in no order, so each one writes another leaf of their tree: at millions of titles the
# tree must fit in memory, and leaves must be written many times before they go to the file.
_CACHE_KIB = 384 * 1024
_LOG_PAGES = 65_536


def build_pages(
    path: Path,
    sources: Sequence[Source],
    *,
    tokenizer: str,
    max_chars: int,
    progress: Callable[[int], object] = lambda n: None,
) -> dict[str, int]:
    """Writes the store `path`, or goes on with it; returns counts of pages, redirects, rejected.

    A title's first page stays, also against a redirect, so sources come in order of preference.
    What can't be used is kept in the table `rejected` with its reason. A source that breaks off is
    told on stderr and isn't done: the next call tries the rest of it again. Raises `ValueError`
    when `path` holds something else, `ImportError` where a parser isn't installed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    settings = {
        "tokenizer": tokenizer,
        "max_chars": max_chars,
        "sources": [[type(s).__name__, s.path.name, _size(s.path)] for s in sources],
    }
    db = sqlite3.connect(path)
    try:
        if not _resume(db, path, settings, len(sources)):
            builder = _Builder(db, token_starts(tokenizer), max_chars)
            for number, source in enumerate(sources):
                builder.add_source(number, source, progress)
            _finish(db)
        db.execute("PRAGMA journal_mode=DELETE")  # one file, readable where nothing can be written
        return dict(read_meta(db)["counts"])
    finally:
        db.close()


def _counts(db: sqlite3.Connection) -> dict[str, int]:
    def one(query: str) -> int:
        return int(db.execute(query).fetchone()[0])

    return {
        "pages": one("SELECT COUNT(*) FROM pages"),
        "excerpts": one("SELECT COUNT(*) FROM pages WHERE excerpt"),
        "disambiguations": one("SELECT COUNT(*) FROM pages WHERE disambiguation"),
        "redirects": one("SELECT COUNT(*) FROM titles WHERE page IS NULL"),
        "tokens": one("SELECT COALESCE(SUM(n_tokens), 0) FROM pages"),
        "rejected": one("SELECT COUNT(*) FROM rejected"),
    }


def _shown(text: str | None) -> str | None:
    return None if text is None else printable(text)


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else -1


def _resume(
    db: sqlite3.Connection, path: Path, settings: Mapping[str, Any], n_sources: int
) -> bool:
    """Whether the store is complete and each source was read to its end; makes its tables where
    there are none."""
    try:
        if not db.execute("SELECT name FROM sqlite_master").fetchall():
            db.execute("PRAGMA journal_mode=WAL")
            with db:
                db.execute("BEGIN")  # sqlite3 opens none for a table: a kill would leave half
                for statement in SCHEMA.split(";"):
                    db.execute(statement)
                _set(db, "version", FORMAT_VERSION)
                _set(db, "settings", settings)
        db.execute("PRAGMA synchronous=NORMAL")
        db.execute(f"PRAGMA cache_size=-{_CACHE_KIB}")
        db.execute(f"PRAGMA wal_autocheckpoint={_LOG_PAGES}")
        meta = read_meta(db)
    except sqlite3.DatabaseError as error:
        raise ValueError(f"{path}: not a page store ({error}); remove it") from error
    if meta.get("settings") != settings:
        raise ValueError(
            f"{path}: built with other settings ({meta.get('settings')} there, {settings} asked "
            "for); remove it, or choose another place"
        )
    return bool(meta.get("complete")) and all(
        meta.get(f"done {number}") == "all" for number in range(n_sources)
    )


def _finish(db: sqlite3.Connection) -> None:
    with db:
        _set(db, "counts", _counts(db))  # at millions of pages, too slow to count at each call
        _set(db, "complete", True)


def _set(db: sqlite3.Connection, key: str, value: Any) -> None:
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, json.dumps(value)))


@dataclass
class _Builder:
    db: sqlite3.Connection
    starts: TokenStarts
    max_chars: int

    def add_source(self, number: int, source: Source, progress: Callable[[int], object]) -> None:
        key = f"done {number}"
        done = read_meta(self.db).get(key, 0)
        if done == "all":
            return
        file = source.path.name
        with self.db:  # of an earlier try: one that breaks off there again is counted once
            self.db.execute(
                "DELETE FROM rejected WHERE source=? AND line IS NULL AND id IS NULL", (number,)
            )
        raw = islice(source.raw(), done, None)
        while True:
            items, broken = _convert(source, raw)
            with self.db:
                aside = self._add(file, items)
                done += len(items)
                if broken is not None:
                    aside.append(SetAside(file, None, None, broken))
                self.db.executemany(
                    "INSERT INTO rejected VALUES (?, ?, ?, ?, ?)",
                    [(number, a.file, a.line, _shown(a.id), printable(a.reason)) for a in aside],
                )
                ended = broken is None and len(items) < _BATCH
                _set(self.db, key, "all" if ended else done)
            progress(len(items))
            if broken is not None:
                print(
                    f"warning: {broken}; {done:,} records of it were read. The rest is tried again "
                    "at the next call; after another download, remove the store first",
                    file=sys.stderr,
                )
            if broken is not None or ended:
                return

    def _add(self, file: str, items: Iterable[Item]) -> list[SetAside]:
        """Writes what can be used; returns the rest."""
        pages: list[SourcePage] = []
        aside: list[SetAside] = []
        for item in items:
            reason = None
            if isinstance(item, SetAside):
                aside.append(item)
                continue
            if isinstance(item, Redirect):
                reason = self._redirect(item)
            elif not (reason := self._unusable(item)):
                pages.append(item)
            if reason:
                aside.append(SetAside(file, None, item.title, reason))
        bodies = [f"{page.title}\n{page.text.strip()}\n\n" for page in pages]
        for page, body, starts in zip(pages, bodies, self.starts(bodies), strict=True):
            if reason := self._claim(title_key(page.title), self._insert(page, body, starts), None):
                self.db.execute("DELETE FROM pages WHERE id=last_insert_rowid()")
                aside.append(SetAside(file, None, page.title, reason))
        return aside

    def _redirect(self, item: Redirect) -> str | None:
        """Takes the redirect's title; says why not."""
        if has_surrogates(item.title, item.target):
            return SURROGATES
        key, target = title_key(item.title), title_key(item.target)
        return "leads to itself" if key == target else self._claim(key, None, target)

    def _unusable(self, page: SourcePage) -> str | None:
        if has_surrogates(
            page.title, page.text, page.revision, *(link.title for link in page.links)
        ):
            return SURROGATES
        if not title_key(page.title):
            return "no title"
        if not page.text.strip():
            return "empty page"
        if len(page.text) > self.max_chars:
            return f"{len(page.text):,} characters, over max_chars {self.max_chars:,}"
        return None

    def _claim(self, key: str, page: int | None, target: str | None) -> str | None:
        """Takes a title; says why not. A page takes the place of a redirect."""
        row = self.db.execute("SELECT page FROM titles WHERE key=?", (key,)).fetchone()
        if row is not None and (row[0] is not None or page is None):
            return "the title is taken"
        self.db.execute("INSERT OR REPLACE INTO titles VALUES (?, ?, ?)", (key, page, target))
        return None

    def _insert(self, page: SourcePage, body: str, starts: np.ndarray) -> int:
        # The body's blanks are stripped and its title stands before it.
        shift = len(page.title) + 1 - (len(page.text) - len(page.text.lstrip()))
        links, at, last = [], 0, len(body)
        for link in sorted(page.links, key=lambda link: (link.start, -link.end)):
            start, end = link.start + shift, link.end + shift
            if max(at, len(page.title) + 1) <= start < end <= last and title_key(link.title):
                links.append([start, end, link.title])
                at = end
        ends = np.array([end for _, end in sentence_spans(body)], np.int64)
        sentences = np.stack([ends, pieces_of(starts, ends)]).astype(np.uint32)
        row = (
            page.title,
            len(starts),
            page.disambiguation,
            page.excerpt,
            page.revision,
            zlib.compress(json.dumps(links, ensure_ascii=False).encode(), 1),
            zlib.compress(sentences.tobytes(), 1),
            zlib.compress(body.encode(), 1),
        )
        added = self.db.execute("INSERT INTO pages VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        return int(added.lastrowid or 0)


def _convert(source: Source, raw: Iterator[Any]) -> tuple[list[Item], str | None]:
    """The next batch, and why the source broke off, if it did."""
    items: list[Item] = []
    try:
        for one in islice(raw, _BATCH):
            try:
                items.append(source.convert(one))
            except ImportError:  # no page's fault: each would be rejected
                raise
            except Exception as error:  # a parser may raise anything on a malformed page
                why = f"can't be converted: {error!r}"
                items.append(SetAside(source.path.name, None, str(one)[:80], why))
    except SourceError as error:
        return items, str(error)
    return items, None
