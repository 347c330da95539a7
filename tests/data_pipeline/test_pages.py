"""The page store: look-ups, redirects, resume; the adapters, also on broken input."""

import bz2
import gzip
import json
import pickle
import re
import sqlite3
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_pipeline.tokens import count_words
from data_pipeline.wiki.build import build_pages
from data_pipeline.wiki.page import (
    Item,
    Link,
    Redirect,
    Rejected,
    SourceError,
    SourcePage,
    replace_spans,
    title_key,
)
from data_pipeline.wiki.sources import Source, open_source
from data_pipeline.wiki.store import PageStore, PageStoreError
from tests.data_pipeline import small_wiki

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"
DUMP = SHARED / "wiki" / "enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"
ZIM = SHARED / "zim" / "libkiwix_zimfile.zim"
SPLIT_ZIM = SHARED / "zim" / "wikipedia_en_ray_charles_2015-06.zim"
needs_shared = pytest.mark.skipif(not DUMP.is_file(), reason="shared/data isn't beside this")


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
    reasons = {row[2]: row[3] for row in rows(tmp_path / "p.sqlite", "rejected")}
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


def converted(kind: str, path: Path) -> list[Item]:
    source = open_source({"kind": kind, "path": str(path)})
    return [source.convert(raw) for raw in source.raw()]


def test_kilt(tmp_path: Path) -> None:
    record = {
        "wikipedia_title": "Anna",
        "text": ["Anna\n", "Anna is of Rome.\n", "Section::::Life.\n", "BULLET::::- In Rome, Bo\n"],
        "anchors": [
            {
                "text": "Rome",
                "href": "Rome%20%28city%29",
                "paragraph_id": 1,
                "start": 11,
                "end": 15,
            },
            {"text": "Bo", "href": "Bo", "paragraph_id": 3, "start": 21, "end": 23},
            {"text": "Anna", "href": "Anna", "paragraph_id": 0, "start": 0, "end": 4},
        ],
        "categories": "Singers",
        "history": {"timestamp": "2019-08-01T00:00:00Z"},
    }
    (tmp_path / "k.jsonl").write_text(json.dumps(record) + "\n[1]\n{}\n")
    page, not_object, no_title = converted("kilt", tmp_path / "k.jsonl")
    assert isinstance(page, SourcePage) and page.revision.startswith("2019")
    assert page.text == "Anna is of Rome.\nLife\nIn Rome, Bo\n"
    assert [(page.text[k.start : k.end], k.title) for k in page.links] == [
        ("Rome", "Rome (city)"),
        ("Bo", "Bo"),
    ]
    assert isinstance(not_object, Rejected) and not_object.place == "line 2"
    assert isinstance(no_title, Rejected) and "wikipedia_title" in no_title.reason


def test_lines_that_are_broken_are_set_aside(tmp_path: Path) -> None:
    good = json.dumps({"title": "T", "text": "Text may refer to:", "links": [[0, 4, "X"]]})
    path = tmp_path / "p.jsonl.gz"
    with gzip.open(path, "wb") as file:
        file.write(good.encode() + b'\n{"title": \n\n{"title": "\xff"}\n{"title": 3}\n')
    page, *bad = converted("pages", path)
    assert isinstance(page, SourcePage) and page.disambiguation and page.links[0].title == "X"
    assert [(b.place, b.reason[:8]) for b in bad if isinstance(b, Rejected)] == [
        ("line 2", "not JSON"),
        ("line 4", "not UTF-"),
        ("line 5", "title an"),
    ]
    path.write_bytes(path.read_bytes()[:-12])
    counts = build(tmp_path / "p.sqlite", open_source({"kind": "pages", "path": path}))
    assert counts["pages"] == 1
    reasons = [row[3] for row in rows(tmp_path / "p.sqlite", "rejected")]
    assert any("can't be read further" in reason for reason in reasons)


def xml(*pages: bytes) -> bytes:
    return b"<mediawiki>" + b"".join(pages) + b"</mediawiki>"


def article(title: str, text: bytes, rest: str = "<ns>0</ns>") -> bytes:
    head = f"<page><title>{title}</title>{rest}<revision><timestamp>2016</timestamp><text>"
    return head.encode() + text + b"</text></revision></page>"


def test_a_dump_and_its_wikitext(tmp_path: Path) -> None:
    text = (
        b"{{Infobox|a=[[No]]}}\n'''Anna''' ([[Latin]]: ''A'')&lt;ref>[[R]]&lt;/ref> is of "
        b"[[Rome|the city]], {{convert|5|km|mi}} off. [[File:A.png|thumb|a [[X]]]]\n"
        b"== Life ==\n* [[:Paris#Old|Paris]] &amp;amp; more\n== References ==\n[[Cut]]\n"
        b"[[Category:Singers]]"
    )
    path = tmp_path / "d.xml.bz2"
    path.write_bytes(
        bz2.compress(
            xml(
                article("Anna", text),
                article("Ann", b"#REDIRECT [[Anna]]", '<ns>0</ns><redirect title="Anna"/>'),
                article("Talk:Anna", b"hm", "<ns>1</ns>"),
                article("Bad", b"a \xff b"),
                article("Mercury", b"It may be:\n{{disambiguation}}"),
            )
        )
    )
    pytest.importorskip("mwparserfromhell")
    page, redirect, talk, bad, mercury = converted("dump", path)
    assert isinstance(page, SourcePage) and page.revision == "2016" and not page.disambiguation
    assert page.text.strip() == ("Anna (Latin: A) is of the city, 5 km off.\nLife\nParis & more")
    assert [(page.text[k.start : k.end], k.title) for k in page.links] == [
        ("Latin", "Latin"),
        ("the city", "Rome"),
        ("Paris", "Paris#Old"),
    ]
    assert redirect == Redirect("Ann", "Anna")
    assert isinstance(talk, Rejected) and talk.reason == "not an article"
    assert isinstance(bad, Rejected) and "aren't UTF-8" in bad.reason
    assert isinstance(mercury, SourcePage) and mercury.disambiguation


def test_a_dump_cut_short_keeps_what_came_before(tmp_path: Path) -> None:
    pytest.importorskip("mwparserfromhell")
    articles = [article(f"A{k}", b"Some text of it. " * 50) for k in range(300)]
    whole, cut, broken = (tmp_path / name for name in ("w.bz2", "c.bz2", "b.xml"))
    whole.write_bytes(b"".join(bz2.compress(part) for part in (xml(*articles)[:-20_000], b"<x>")))
    cut.write_bytes(whole.read_bytes()[:-4])
    broken.write_bytes(xml(*articles[:3], b"<page><title>A & B</title></page>", *articles[3:]))
    for path, least in ((cut, 200), (broken, 0)):
        counts = build(
            tmp_path / f"{path.stem}.sqlite",
            open_source({"kind": "dump", "path": path}),
            Listed((SourcePage("After", "It goes on."),)),
        )
        assert counts["pages"] > least
        assert PageStore(tmp_path / f"{path.stem}.sqlite").find("After") is not None
        reasons = [row[3] for row in rows(tmp_path / f"{path.stem}.sqlite", "rejected")]
        assert any("fetch it again" in reason for reason in reasons)


def test_html_of_a_zim_page() -> None:
    from data_pipeline.wiki.html import to_text

    html = (
        '<head><title>X</title></head><h1>Anna</h1><p>Anna is of <a href="Rome.html" title="Rome">'
        'the\n city</a><sup><a href="#1">[1]</a></sup> &amp; <a href="../A/Bo_C%27s">Bo</a>.</p>'
        '<table><tr><td><a href="No">no</a><br></td></tr></table><ul><li>One'
        '<li>Two <a href="https://a.b/C">out</a></ul>'
    )
    text, links = to_text(html, "Anna")
    assert text.strip() == "Anna is of the city & Bo.\nOne\nTwo out"
    assert [(text[k.start : k.end], k.title) for k in links] == [
        ("the city", "Rome"),
        ("Bo", "Bo_C's"),
    ]


@needs_shared
@pytest.mark.parametrize(("path", "pages", "redirects"), [(ZIM, 129, 155), (SPLIT_ZIM, 85, 152)])
def test_real_zims(path: Path, pages: int, redirects: int) -> None:
    pytest.importorskip("libzim")
    items = converted("zim", path)
    found = [item for item in items if isinstance(item, SourcePage)]
    assert len(found) == pages
    # Redirects to pictures and metadata aren't ours.
    assert redirects - 3 <= sum(isinstance(item, Redirect) for item in items) <= redirects
    ray = next(page for page in found if page.title == "Ray Charles")
    assert ray.text.startswith("Ray Charles Robinson") and len(ray.links) > 2
    assert path != SPLIT_ZIM or re.fullmatch(r"201[45]-\d\d-\d\d", ray.revision)
    for page in found:
        for link in page.links:
            assert page.text[link.start : link.end].strip()
        assert not re.search(r"<\w+ |&amp;|\[edit\]|is issued from", page.text), page.title


@needs_shared
def test_the_real_dump() -> None:
    pytest.importorskip("mwparserfromhell")
    source = open_source({"kind": "dump", "path": DUMP})
    raw = list(source.raw())
    assert sum(one.redirect is not None for one in raw) == 100
    assert sum(one.redirect is None and one.namespace == "0" for one in raw) == 106
    albedo = source.convert(next(one for one in raw if one.title == "Albedo"))
    assert isinstance(albedo, SourcePage) and "ratio of reflected radiation" in albedo.text
    assert len(albedo.links) > 80 and "{{" not in albedo.text and "[[" not in albedo.text


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
