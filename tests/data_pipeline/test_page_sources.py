"""The adapters: KILT, JSON lines, dumps, ZIMs, also on broken input."""

import bz2
import gzip
import json
import re
from pathlib import Path

import pytest

from data_pipeline.set_aside import SetAside
from data_pipeline.wiki.page import Redirect, SourcePage
from data_pipeline.wiki.sources import open_source
from data_pipeline.wiki.store import PageStore
from tests.data_pipeline.listed import Listed, article, build, converted, rows, xml

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"
DUMP = SHARED / "wiki" / "enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"
ZIM = SHARED / "zim" / "libkiwix_zimfile.zim"
SPLIT_ZIM = SHARED / "zim" / "wikipedia_en_ray_charles_2015-06.zim"
needs_shared = pytest.mark.skipif(not DUMP.is_file(), reason="shared/data isn't beside this")


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
    assert isinstance(not_object, SetAside) and (not_object.file, not_object.line) == ("k.jsonl", 2)
    assert isinstance(no_title, SetAside) and "wikipedia_title" in no_title.reason


def test_lines_that_are_broken_are_set_aside(tmp_path: Path) -> None:
    good = json.dumps({"title": "T", "text": "Text may refer to:", "links": [[0, 4, "X"]]})
    path = tmp_path / "p.jsonl.gz"
    with gzip.open(path, "wb") as file:
        file.write(good.encode() + b'\n{"title": \n\n{"title": "\xff"}\n{"title": 3}\n')
    page, *bad = converted("pages", path)
    assert isinstance(page, SourcePage) and page.disambiguation and page.links[0].title == "X"
    assert [(b.line, b.reason[:8]) for b in bad if isinstance(b, SetAside)] == [
        (2, "not JSON"),
        (4, "not UTF-"),
        (5, "title mu"),
    ]
    path.write_bytes(path.read_bytes()[:-12])
    counts = build(tmp_path / "p.sqlite", open_source({"kind": "pages", "path": path}))
    assert counts["pages"] == 1
    reasons = [row[4] for row in rows(tmp_path / "p.sqlite", "rejected")]
    assert any("can't be read further" in reason for reason in reasons)


def test_a_dump_and_its_wikitext(tmp_path: Path) -> None:
    text = (
        b"{{Infobox|a=[[No]]}}\n'''Anna''' ([[Latin]]: ''A'')&lt;ref>[[R]]&lt;/ref> is of "
        b"[[Rome|the city]], {{convert|5|km|mi}} off. [[File:A.png|thumb|a [[X]]]]\n"
        b"== Life ==\n* [[:Paris#Old|Paris]] &amp;amp; more [[de:Anna]]of [[CSI: NY|it]]\n"
        b"== References ==\n[[Cut]]\n"
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
    page, redirect, bad, mercury = converted("dump", path)  # and no talk page
    assert isinstance(page, SourcePage) and page.revision == "2016" and not page.disambiguation
    assert page.text.strip() == (
        "Anna (Latin: A) is of the city, 5 km off.\nLife\nParis & more of it"
    )
    assert [(page.text[k.start : k.end], k.title) for k in page.links] == [
        ("Latin", "Latin"),
        ("the city", "Rome"),
        ("Paris", "Paris#Old"),
        ("it", "CSI: NY"),
    ]
    assert redirect == Redirect("Ann", "Anna")
    assert isinstance(bad, SetAside) and "aren't UTF-8" in bad.reason
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
        reasons = [row[4] for row in rows(tmp_path / f"{path.stem}.sqlite", "rejected")]
        assert any("fetch it again" in reason for reason in reasons)


def test_html_of_a_zim_page() -> None:
    from data_pipeline.wiki.html import to_text

    html = (
        '<head><title>X</title></head><h1>Anna</h1><p>Anna is of <a href="Rome.html" title="Rome">'
        'the\n city</a><sup><a href="#1">[1]</a></sup> &amp; <a href="../A/Bo_C%27s">Bo</a>.</p>'
        '<table><tr><td><a href="No">no</a><br></td></tr></table><ul><li>One'
        '<li>Two <a href="https://a.b/C">out</a> <a href="http://[x">of</a></ul>'
    )
    text, links = to_text(html, "Anna")
    assert text.strip() == "Anna is of the city & Bo.\nOne\nTwo out of"
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
    # One more of its 100 redirects stands outside the articles.
    assert sum(one.redirect is not None for one in raw) == 99
    assert sum(one.redirect is None for one in raw) == 106
    albedo = source.convert(next(one for one in raw if one.title == "Albedo"))
    assert isinstance(albedo, SourcePage) and "ratio of reflected radiation" in albedo.text
    assert len(albedo.links) > 80 and "{{" not in albedo.text and "[[" not in albedo.text
