"""The page store: look-ups, redirects, resume, sources that break off; titles and links."""

import gzip
import json
import pickle
import re
import sqlite3
import sys
import zlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_pipeline.tokens import count_words
from data_pipeline.wiki.page import (
    Item,
    Link,
    Redirect,
    SourceError,
    SourcePage,
    replace_spans,
    title_key,
)
from data_pipeline.wiki.sources import open_source
from data_pipeline.wiki.store import PageStore, PageStoreError
from tests.data_pipeline import small_wiki
from tests.data_pipeline.listed import Listed, build, rows


def test_titles_redirects_and_what_is_rejected(tmp_path: Path) -> None:
    items = (
        Redirect("New York", "Old"),
        SourcePage("New York", " \nA city. See it.", (Link(2, 8, "City"), Link(2, 90, "Far"))),
        Redirect("NYC", "new_York#History"),
        Redirect("Big Apple", "NYC"),
        Redirect("Here", "There"),
        Redirect("There", "Here"),
        Redirect("Me", "me"),
        SourcePage("New_York", "Another text."),
        SourcePage("Empty", "  \n "),
        SourcePage("Long", "x" * 10_001),
        SourcePage("", "No title."),
        Redirect("New York", "Elsewhere"),
    )
    counts = build(tmp_path / "p.sqlite", Listed(items))
    assert counts == {
        "pages": 1, "excerpts": 0, "disambiguations": 0, "redirects": 4, "tokens": 8, "rejected": 6,
    }  # fmt: skip
    store = PageStore(tmp_path / "p.sqlite", tokenizer="words")
    (page,) = {store.find(t) for t in ("New York", "new York", "New_York", "NYC", "Big Apple")}
    assert page is not None and store.find("Here") is None and store.find("Nowhere") is None
    assert store.text(page) == "New York\nA city. See it.\n\n"
    about = store.page(page)
    assert [(store.text(page)[k.start : k.end], k.title) for k in about.links] == [
        ("A city", "City")
    ]
    assert about.n_tokens == about.counts.sum() == count_words([store.text(page)])[0]
    assert [store.text(page)[a:b] for a, b in zip([0, *about.ends], about.ends, strict=False)] == [
        "New York\n", "A city. ", "See it.\n\n",
    ]  # fmt: skip
    reasons = {one.id: one.reason for one in store.set_aside()}
    assert reasons["Empty"] == "empty page" and "over max_chars 10,000" in reasons["Long"]
    assert reasons["Me"] == "leads to itself" and reasons[""] == "no title"
    assert reasons["New York"] == reasons["New_York"] == "the title is taken"
    assert pickle.loads(pickle.dumps(store)).find("NYC") == page


def test_a_killed_build_goes_on_to_the_same_store(tmp_path: Path) -> None:
    items = tuple(small_wiki.pages(900, 5, (1, 4)))
    build(tmp_path / "whole.sqlite", Listed(items), max_chars=9000)
    for dies_at in (700, 100, 600, 899):
        with pytest.raises(KeyboardInterrupt):
            build(tmp_path / "part.sqlite", Listed(items, dies_at=dies_at), max_chars=9000)
        with pytest.raises(PageStoreError, match="isn't complete"):
            PageStore(tmp_path / "part.sqlite")
    build(tmp_path / "part.sqlite", Listed(items), max_chars=9000)
    for table in ("pages", "titles", "rejected"):
        assert rows(tmp_path / "part.sqlite", table) == rows(tmp_path / "whole.sqlite", table)
    with pytest.raises(ValueError, match="built with other settings"):
        build(tmp_path / "part.sqlite", Listed(items), max_chars=50)


def test_a_kill_while_tables_are_made_or_after_the_last_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, items = tmp_path / "p.sqlite", Listed((SourcePage("A", "B."),))
    with monkeypatch.context() as patch:
        patch.setattr("data_pipeline.wiki.build._set", dies)
        with pytest.raises(KeyboardInterrupt):
            build(store, items)
    counts = build(store, items)
    assert counts["pages"] == 1
    with closing(sqlite3.connect(store)) as db:  # complete, and not yet one file again
        db.execute("PRAGMA journal_mode=WAL")
    assert build(store, items) == counts
    with closing(sqlite3.connect(store)) as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def dies(*_: object) -> None:
    raise KeyboardInterrupt


@dataclass(frozen=True)
class Breaking(Listed):
    """Can't be read beyond `dies_at`."""

    def raw(self) -> Iterator[Item]:
        yield from self.items[: self.dies_at]
        if self.dies_at is not None:
            raise SourceError("listed: can't be read further")


def test_a_source_that_breaks_off_is_told_and_tried_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    items = tuple(small_wiki.pages(300, 5, (1, 4)))
    store, after = tmp_path / "p.sqlite", Listed((SourcePage("After", "It goes on."),))
    first = build(store, Breaking(items, dies_at=280), after)
    assert first["pages"] == 281 and first["rejected"] == 1
    assert "can't be read further; 280 records of it were read" in capsys.readouterr().err
    assert PageStore(store).find("After") is not None
    assert build(store, Breaking(items, dies_at=280), after) == first
    whole = build(store, Breaking(items), after)
    assert whole["pages"] == 301 and whole["rejected"] == 0
    capsys.readouterr()
    assert build(store, Breaking(items), after) == whole and capsys.readouterr().err == ""


@dataclass(frozen=True)
class Unreadable(Listed):
    def convert(self, raw: Item) -> Item:
        import no_such_parser  # type: ignore[import-not-found]  # noqa: F401

        return raw


def test_a_parser_that_is_missing_stops_the_build(tmp_path: Path) -> None:
    with pytest.raises(ImportError, match="no_such_parser"):
        build(tmp_path / "p.sqlite", Unreadable((SourcePage("A", "B."),)))
    assert build(tmp_path / "p.sqlite", Unreadable(()))["rejected"] == 0


@pytest.mark.parametrize(("kind", "module"), [("dump", "mwparserfromhell"), ("zim", "libzim")])
def test_a_source_without_its_reader_names_the_extra(
    kind: str, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    for name in (module, f"{module}.reader"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ValueError, match=rf"needs {module} .*pip install 'disco-rl\[wiki\]'"):
        open_source({"kind": kind, "path": str(tmp_path / "file")})


def test_half_a_surrogate_pair_costs_its_page_alone(tmp_path: Path) -> None:
    half = "a \ud800 b"
    pages = [
        {"title": half, "text": "Text."},
        {"title": "In the text", "text": half},
        {"title": "In a link", "text": "Text.", "links": [[0, 4, half]]},
        {"title": half, "text": 3},
        {"title": "Good", "text": "Text with a pair: 🙂."},
    ]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(page) + "\n" for page in pages))
    (tmp_path / "r.json").write_text(json.dumps({half: "Good", "To": half, "Fine": "Good"}))
    counts = build(
        tmp_path / "p.sqlite",
        open_source({"kind": "pages", "path": str(tmp_path / "p.jsonl")}),
        open_source({"kind": "redirects", "path": str(tmp_path / "r.json")}),
    )
    assert (counts["pages"], counts["redirects"], counts["rejected"]) == (1, 1, 6)
    assert PageStore(tmp_path / "p.sqlite").find("Fine") is not None


def test_a_broken_deflate_stream_breaks_its_source_off(tmp_path: Path) -> None:
    lines = b"".join(
        json.dumps({"title": p.title, "text": p.text}).encode() + b"\n"
        for p in small_wiki.pages(100, 3)
    )
    packer = zlib.compressobj(wbits=31)
    packed = packer.compress(lines) + packer.flush(zlib.Z_FULL_FLUSH) + b"\xff" * 99
    path = tmp_path / "p.jsonl.gz"
    path.write_bytes(packed)
    with pytest.raises(zlib.error, match="invalid block type"):
        gzip.decompress(packed)
    counts = build(tmp_path / "p.sqlite", open_source({"kind": "pages", "path": str(path)}))
    assert 0 < counts["pages"] <= 100 and counts["rejected"] == 1


def test_a_missing_or_foreign_store_is_explained(tmp_path: Path) -> None:
    with pytest.raises(PageStoreError, match="no such page store; build it with"):
        PageStore(tmp_path / "none.sqlite")
    (tmp_path / "text.sqlite").write_text("not a database, but long enough to be read as one" * 9)
    with pytest.raises(PageStoreError, match="not a page store"):
        PageStore(tmp_path / "text.sqlite")
    build(tmp_path / "p.sqlite", Listed((SourcePage("A", "B."),)))
    with pytest.raises(PageStoreError, match="counted with 'words', not 'other'"):
        PageStore(tmp_path / "p.sqlite", tokenizer="other")


@given(st.text("ab .", max_size=30), st.lists(st.integers(0, 29), max_size=8))
def test_links_move_with_the_text(text: str, cuts: list[int]) -> None:
    places = sorted({min(cut, len(text)) for cut in cuts})
    links = [Link(a, b, text[a:b]) for a, b in pairwise(places)]
    new, moved = replace_spans(text, links, re.compile(r" +"), "_")
    assert new == re.sub(r" +", "_", text)
    at = 0
    for link in moved:
        assert at <= link.start < link.end <= len(new)
        at = link.end
        inner = new[link.start : link.end].strip("_")
        assert inner == re.sub(r" +", "_", link.title.strip(" "))


@pytest.mark.parametrize(
    ("title", "key"),
    [
        ("new_york  City", "New york City"),
        ("éa", "Éa"),
        (":A#b", "A"),
        ("#x", ""),
        ("iPod", "IPod"),
    ],
)
def test_title_key(title: str, key: str) -> None:
    assert title_key(title) == key
