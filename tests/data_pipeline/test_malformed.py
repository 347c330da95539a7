"""Malformed input, as it comes from files, through the command line: a clear message for each, and
the same data set as from a run without it."""

import bz2
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from data_pipeline.__main__ import main
from data_pipeline.wiki.store import PageStore
from tests.data_pipeline import small_wiki
from tests.data_pipeline.listed import article, xml
from tests.data_pipeline.pipeline import hashes, overrides

MEGABYTE = 2**20


def cut_dump(folder: Path) -> dict[str, str]:
    """A bz2 whose end was lost on the way."""
    pytest.importorskip("mwparserfromhell")
    whole = xml(*(article(f"Dumped {k}", b"Some text of it. " * 50) for k in range(600)))
    (folder / "cut.xml.bz2").write_bytes(bz2.compress(whole, 1)[:-1000])
    return {"kind": "dump", "path": str(folder / "cut.xml.bz2")}


def long_dump(folder: Path) -> dict[str, str]:
    """An article of 30 MB of markup: parsing it would take minutes."""
    pytest.importorskip("mwparserfromhell")
    long = article("Longest", b"[[A]] {{b|c}} " * (30 * MEGABYTE // 14))
    (folder / "long.xml.bz2").write_bytes(bz2.compress(xml(long, article("Short", b"A b.")), 1))
    return {"kind": "dump", "path": str(folder / "long.xml.bz2")}


def lines(*values: Any) -> Callable[[Path], dict[str, str]]:
    """Lines of JSON; one that is bytes stands as it is."""

    def write(folder: Path) -> dict[str, str]:
        raw = [v if isinstance(v, bytes) else json.dumps(v).encode() for v in values]
        (folder / "lines.jsonl").write_bytes(b"\n".join(raw) + b"\n")
        return {"kind": "pages", "path": str(folder / "lines.jsonl")}

    return write


def redirects(value: Any) -> Callable[[Path], dict[str, str]]:
    def write(folder: Path) -> dict[str, str]:
        text = value if isinstance(value, str) else json.dumps(value)
        (folder / "redirects.json").write_text(text)
        return {"kind": "redirects", "path": str(folder / "redirects.json")}

    return write


def excerpts(folder: Path) -> dict[str, str]:
    records = json.dumps(small_wiki.records(2, small_wiki.titles(9), 4)).encode()
    (folder / "excerpts.json").write_bytes(records[:-100] + b"\xff" + records[-100:])
    return {"kind": "excerpts", "path": str(folder / "excerpts.json")}


PAGES = {
    "truncated bz2": (cut_dump, "fetch it again"),
    "page of 30 MB in a dump": (long_dump, "of markup, over 8,388,608"),
    "page of 30 MB": (
        lines({"title": "Long", "text": "Long. " * (5 * MEGABYTE)}),
        "31,457,280 characters, over max_chars 2,000,000",
    ),
    "broken JSON": (lines(b'{"title": "Broken", "te'), "not JSON: Unterminated string"),
    "bad UTF-8": (lines(b'{"title": "Bad", "text": "\xff"}'), "not UTF-8 at byte 26 of the line"),
    "empty page": (lines({"title": "Empty", "text": " \n "}), "empty page"),
    "title met before": (
        lines({"title": "Twice", "text": "One."}, {"title": "Twice", "text": "Two."}),
        "the title is taken",
    ),
    "links that are no links": (
        lines({"title": "L", "text": "T", "links": [[1]]}),
        "links must be",
    ),
    "excerpts that aren't UTF-8": (excerpts, "not UTF-8"),
    "redirect to itself": (redirects({"Round": "round"}), "leads to itself"),
    "redirects that are no JSON": (redirects("{"), "redirects.json: not JSON"),
}


@pytest.mark.parametrize("what", PAGES)
def test_pages(
    what: str, built: Path, inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write, reason = PAGES[what]
    source = write(tmp_path)
    listed = f"{{kind: {source['kind']}, path: {source['path']}}}"
    good = f"{{kind: pages, path: {inputs / 'pages.jsonl'}}}"
    out = tmp_path / "out"
    words = overrides(inputs, out, f"pages.sources=[{good},{listed}]")
    assert main(["all", *words]) == 0
    told = [json.loads(line) for line in (out / "pages_rejected.jsonl").read_text().splitlines()]
    assert [one["file"] for one in told] == [Path(source["path"]).name]
    assert reason in told[0]["reason"]
    if "fetch it again" in reason or "not JSON (" in told[0]["reason"]:  # the source broke off
        assert reason in capsys.readouterr().err
    assert texts(out) == texts(built)


def texts(out: Path) -> dict[str, str]:
    """What of a data set doesn't speak of the page store's counts."""
    return {
        name: digest
        for name, digest in hashes(out / "dataset").items()
        if name.endswith(("parquet", "arrow", "samples.jsonl", "dropped.jsonl"))
    }


def test_pages_that_link_to_themselves_and_redirects_in_a_circle(
    inputs: Path, tmp_path: Path
) -> None:
    """In the only source: every page also links to itself and into the circle."""
    made = [json.loads(line) for line in (inputs / "pages.jsonl").read_text().splitlines()]
    for page in made:
        size = len(page["text"])
        page["text"] += " Here it is. Round it goes. "
        page["links"] += [[size + 1, size + 5, page["title"]], [size + 13, size + 18, "Round"]]
    pages, circle = tmp_path / "pages.jsonl", tmp_path / "circle.json"
    pages.write_text("".join(json.dumps(page) + "\n" for page in made))
    circle.write_text(json.dumps({"Round": "Round B", "Round B": "Round C", "Round C": "Round"}))
    sources = f"[{{kind: pages, path: {pages}}},{{kind: redirects, path: {circle}}}]"
    out = tmp_path / "out"
    assert main(["all", *overrides(inputs, out, f"pages.sources={sources}")]) == 0
    assert PageStore(out / "pages.sqlite").find("Round") is None
    plans = [json.loads(line)["plan"] for line in (out / "plans.jsonl").read_text().splitlines()]
    made_plans = [plan for plan in plans if plan is not None]
    assert len(made_plans) > 6
    for plan in made_plans:
        pages_used = [one["page"] for one in plan["insertions"]]
        assert len(set(pages_used)) == len(pages_used) > 3


def test_questions(
    built: Path, inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Broken lines, bytes and fields, and an id met before, among twelve good records."""
    good = (inputs / "musique.jsonl").read_bytes().splitlines()[:12]
    again = json.loads(good[0])
    doubled = json.loads(good[1])
    doubled["id"] = "doubled"
    doubled["paragraphs"][1]["idx"] = 0
    bad = {
        b'{"id": "cut", "questi': "not JSON: Unterminated string",
        b'{"id": "\xff"}': "not UTF-8 at byte 8 of the line",
        json.dumps(again).encode(): "its id came before",
        json.dumps(doubled).encode(): "paragraphs[1].idx 0 came before",
        b"[1, 2]": "not an object but list",
        b'{"id": "bare"}': "question must be a text",
    }
    path = tmp_path / "musique.jsonl"
    path.write_bytes(b"\n".join([*good, *bad]) + b"\n")
    out = tmp_path / "out"
    assert main(["all", *overrides(inputs, out), f"questions.in={path}"]) == 0
    assert "12 questions, 6 set aside" in capsys.readouterr().out
    told = [json.loads(line) for line in (out / "set_aside.jsonl").read_text().splitlines()]
    assert [one["line"] for one in told] == list(range(13, 19))
    for one, reason in zip(told, bad.values(), strict=True):
        assert reason in one["reason"], one
    assert texts(out) == texts(built)


def test_nothing_usable_is_an_error_that_says_why(
    inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "musique.jsonl").write_text('{"id": "cut", "questi\n')
    words = [*overrides(inputs, tmp_path / "out"), f"questions.in={tmp_path / 'musique.jsonl'}"]
    assert main(["all", *words]) == 2
    assert "no usable record: not JSON" in capsys.readouterr().err


def test_a_list_cut_short_keeps_its_whole_records(
    inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = small_wiki.records(5, [p.title for p in small_wiki.pages(200, 11)], 4)
    (tmp_path / "musique.json").write_text(json.dumps(made)[:-300])
    words = [*overrides(inputs, tmp_path / "out"), f"questions.in={tmp_path / 'musique.json'}"]
    assert main(["questions", *words]) == 0
    assert "4 questions, 1 set aside" in capsys.readouterr().out
