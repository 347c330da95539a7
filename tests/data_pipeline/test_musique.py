"""MuSiQue: references resolved, evidence found, gold kept, bad records set aside with a reason."""

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_pipeline.evidence import check_evidence, evidence_span
from data_pipeline.musique import build_musique, convert
from data_pipeline.musique_records import Paragraph, Record, Step, read_records
from data_pipeline.set_aside import SetAside
from data_pipeline.tokens import count_words
from disco_rl.core.sample import Hop, Sample
from disco_rl.data import ContextStore, load_rows

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "musique"
OFFICIAL = SHARED / "hipporag_musique_train.json"
needs_official = pytest.mark.skipif(
    not OFFICIAL.is_file(), reason="shared/data/musique isn't beside this checkout"
)


def record(**changes: Any) -> dict[str, Any]:
    """A 3-hop record whose gold and distractor share a title."""
    paragraphs = [
        ("Song", "A song is sung. It was written by Zoë Kelin in Paris."),
        ("Zoë Kelin", "Zoë Kelin is a singer. She was born in Tesmar."),
        ("Zoë Kelin", "Zoë Kelin is also a ship. It sank."),
        ("Tesmar", "Tesmar is a town. G. Varo Hall is its mayor. Few know why."),
    ]
    value = {
        "id": "3hop1__1_2_3",
        "question": "Who is the mayor of the town where the writer of Song was born?",
        "answer": "G. Varo Hall",
        "answer_aliases": ["Varo Hall"],
        "answerable": True,
        "paragraphs": [
            {"idx": i, "title": title, "paragraph_text": text, "is_supporting": i != 2}
            for i, (title, text) in enumerate(paragraphs)
        ],
        "question_decomposition": [
            step(1, "Song >> author", "Zoë Kelin", 0),
            step(2, "Where was #1 born?", "Tesmar", 1),
            step(3, "Who governs #2 , home of #1 ?", "G. Varo Hall", 3),
        ],
    }
    return {**value, **changes}


def step(id: int, question: str, answer: str, support: int | None) -> dict[str, Any]:
    return {"id": id, "question": question, "answer": answer, "paragraph_support_idx": support}


def write(path: Path, *values: Any) -> Path:
    path.write_text("".join(json.dumps(value) + "\n" for value in values), encoding="utf-8")
    return path


def only(path: Path) -> Record:
    (found,) = read_records(path)
    assert isinstance(found, Record), found
    return found


def test_references_are_resolved_and_relations_left_as_they_are(tmp_path: Path) -> None:
    found = only(write(tmp_path / "r.jsonl", record()))
    assert [s.question for s in found.steps] == [
        "Song >> author",
        "Where was Zoë Kelin born?",
        "Who governs Tesmar , home of Zoë Kelin ?",
    ]
    assert found.answers == ("G. Varo Hall", "Varo Hall")


def test_evidence_is_the_sentence_with_the_answer(tmp_path: Path) -> None:
    sample, context = convert(only(write(tmp_path / "r.jsonl", record())), count_words, 16, 5)
    assert [context.text[slice(*hop.span)] for hop in sample.hops] == [
        "It was written by Zoë Kelin in Paris.",
        "She was born in Tesmar.",
        "G. Varo Hall is its mayor.",
    ]
    assert [hop.aliases for hop in sample.hops] == [(), (), ("Varo Hall",)]
    assert context.text.startswith("Song\nA song is sung.")
    assert sample.answers == ("G. Varo Hall", "Varo Hall") and sample.index == 5
    assert sample.n_shards == len(context.shards) > 3
    for hop in sample.hops:
        covered = "".join(context.read(i) for i in hop.shard_ids)
        assert context.text[slice(*hop.span)] in covered


def test_paragraphs_of_one_title_are_kept_apart_and_copies_are_not(tmp_path: Path) -> None:
    value = record()
    copy_of_gold = dict(value["paragraphs"][1], idx=4, is_supporting=False)
    value["paragraphs"].append(copy_of_gold)
    value["question_decomposition"][1]["paragraph_support_idx"] = 4
    sample, context = convert(only(write(tmp_path / "r.jsonl", value)), count_words, 512, 0)
    assert context.text.count("Zoë Kelin\nZoë Kelin is") == 2
    assert context.text.count("She was born in Tesmar.") == 1
    assert context.text[slice(*sample.hops[1].span)] == "She was born in Tesmar."


@pytest.mark.parametrize(
    ("text", "question", "answer", "aliases", "expected"),
    [
        ("Ann was here. Bob was there.", "Who was there?", "Bob", [], "Bob was there."),
        # Of two places, the one that shares words with the question; a year isn't its digits.
        ("Ann saw 35 in 1935. 35 stores exist.", "How many stores?", "35", [], "35 stores exist."),
        ("It is small. An American film.", "Country?", "America", [], "An American film."),
        (
            "He lives in the US now. It is no lie.",
            "Where?",
            "America",
            ["US"],
            "He lives in the US now.",
        ),
        ("It is no lie. A Norwegian said so.", "Where?", "Norway", ["NO"], None),
        ("Nothing. Here. At all.", "Who?", "Bob", [], None),
    ],
)
def test_evidence_span(
    text: str, question: str, answer: str, aliases: list[str], expected: str | None
) -> None:
    start, end = evidence_span(Step(question, answer, Paragraph("T", text)), aliases)
    assert text[start:end] == (text if expected is None else expected)


@settings(deadline=None)
@given(st.text(), st.text(min_size=1), st.text())
def test_an_answer_in_the_paragraph_lies_in_its_span(left: str, answer: str, right: str) -> None:
    text = f"{left} {answer} {right}"
    start, end = evidence_span(Step("q", answer, Paragraph("T", text)), [])
    assert 0 <= start <= end <= len(text)
    assert answer.strip().casefold() in text[start:end].casefold()


def without(name: str) -> dict[str, Any]:
    value = record()
    del value[name]
    return value


def changed(change: Any) -> dict[str, Any]:
    value = copy.deepcopy(record())
    change(value)
    return value


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (without("id"), "id must be a text"),
        (without("answer"), "answer must be a text"),
        (without("paragraphs"), "paragraphs must be a list"),
        (record(question="  "), "question must be a text"),
        (record(answerable=False), "answerable is false"),
        (changed(lambda v: v["paragraphs"][2].update(idx=0)), r"paragraphs\[2\].idx 0 came before"),
        (record(question_decomposition=[]), "question_decomposition must be a list"),
        (record(answer_aliases="Varo"), "answer_aliases must be a list of texts"),
        (record(answer="Someone", answer_aliases=[]), "isn't the record's answer 'Someone'"),
        (record(question="Who \ud800?"), "question holds half of a surrogate pair"),
        (record(answer_aliases=["Varo \ud800"]), "answer_aliases holds half of a surrogate pair"),
        (["a list"], "not an object but list"),
        (
            changed(lambda v: v["paragraphs"][2].pop("paragraph_text")),
            r"paragraphs\[2\].paragraph_text must be a text",
        ),
        (
            changed(lambda v: v["question_decomposition"][0].update(paragraph_support_idx=None)),
            r"question_decomposition\[0\].paragraph_support_idx must be a whole number, not None",
        ),
        (
            changed(lambda v: v["question_decomposition"][0].update(paragraph_support_idx=9)),
            "paragraph_support_idx 9 is no idx of paragraphs",
        ),
        (
            changed(lambda v: v["question_decomposition"][1].update(question="Where is #2 ?")),
            r"question_decomposition\[1\].question refers to #2, which is no earlier step",
        ),
    ],
)
def test_a_bad_record_is_set_aside_with_line_and_reason(
    tmp_path: Path, value: Any, reason: str
) -> None:
    path = write(tmp_path / "r.jsonl", record(id="good"), value, record(id="after"))
    good, bad, after = read_records(path)
    assert isinstance(good, Record) and isinstance(after, Record)
    assert isinstance(bad, SetAside) and (bad.file, bad.line) == ("r.jsonl", 2)
    assert re.search(reason, bad.reason), bad.reason


def test_bad_bytes_and_cut_off_lines_are_set_aside(tmp_path: Path) -> None:
    good = json.dumps(record()).encode()
    path = tmp_path / "r.jsonl"
    path.write_bytes(good + b'\n{"id": "\xff"}\n\n' + good[:200])
    first, latin, cut = read_records(path)
    assert isinstance(first, Record)
    assert isinstance(latin, SetAside) and latin.line == 2 and "not UTF-8 at byte 8" in latin.reason
    assert isinstance(cut, SetAside) and cut.line == 4 and "not JSON" in cut.reason


def test_a_list_cut_short_still_gives_what_came_before(tmp_path: Path) -> None:
    whole = json.dumps([record(id="a"), record(id="b"), record(id="c")], indent=1)
    path = tmp_path / "r.json"
    path.write_text(whole)
    assert [r.id for r in read_records(path)] == ["a", "b", "c"]
    third = whole.index('"c"')
    path.write_text(whole[: third + 50])
    a, b, cut = read_records(path)
    assert isinstance(a, Record) and isinstance(b, Record) and (a.id, b.id) == ("a", "b")
    assert isinstance(cut, SetAside) and "the rest of the list is lost" in cut.reason
    assert cut.line == whole.count("\n", 0, third)  # where its object opens, a line before its id
    path.write_text(whole[: whole.rindex("]")])
    assert "cut off after a record" in list(read_records(path))[-1].reason


def test_a_list_that_is_not_utf8_names_the_line(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_bytes(b'[\n{"id":\n"\xff"}]')
    with pytest.raises(ValueError, match=r"r\.json, line 3: not UTF-8"):
        list(read_records(tmp_path / "r.json"))


def test_build_writes_rows_store_and_what_was_dropped(tmp_path: Path) -> None:
    values = [record(id=f"r{i}") for i in range(6)]
    source = write(tmp_path / "in.jsonl", *values, record(id="r3"), without("answer"))
    manifest, built = build_musique(source, tmp_path / "out", n_validation=2, shard_size=16)
    assert built
    train, validation = (
        load_rows(tmp_path / "out" / f"{split}.parquet") for split in ("train", "validation")
    )
    assert [s.context_id for s in validation] == ["musique-r0", "musique-r1"]
    assert [(s.index, s.context_id) for s in train] == [(i, f"musique-r{i + 2}") for i in range(4)]
    store = ContextStore(tmp_path / "out" / "contexts", tokenizer="words", shard_size=16)
    assert len(store) == 6
    assert check_evidence(train, store).in_span == 12
    dropped = [json.loads(line) for line in (tmp_path / "out" / "dropped.jsonl").open()]
    assert [(d["line"], d["id"], d["file"]) for d in dropped] == [
        (7, "r3", "in.jsonl"),
        (8, "3hop1__1_2_3", "in.jsonl"),
    ]
    assert manifest["counts"]["set aside"] == {"records": 2}
    same, built = build_musique(source, tmp_path / "out", n_validation=2, shard_size=16)
    assert not built and same == manifest
    with pytest.raises(ValueError, match=r"other settings \(shard_size: 16 there, 32 asked for\)"):
        build_musique(source, tmp_path / "out", n_validation=2, shard_size=32)


def test_nothing_is_left_behind_when_no_record_is_usable(tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", without("answer"))
    with pytest.raises(ValueError, match=r"no record is left for training \(.*answer must be"):
        build_musique(source, tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["in.jsonl"]


def test_missing_and_empty_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none\.json: no such file"):
        build_musique(tmp_path / "none.json", tmp_path / "out")
    (tmp_path / "e.json").write_text("\n")
    with pytest.raises(ValueError, match=r"e\.json is empty"):
        build_musique(tmp_path / "e.json", tmp_path / "out")


def test_the_check_reports_a_hop_without_its_answer(tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", record())
    build_musique(source, tmp_path / "out")
    (sample,) = load_rows(tmp_path / "out" / "train.parquet")
    wrong = Hop("q", "Nowhere Else", ("Nor Here",), sample.hops[0].shard_ids, sample.hops[0].span)
    broken = Sample(**{**_fields(sample), "hops": (wrong, *sample.hops[1:])})
    check = check_evidence([broken], ContextStore(tmp_path / "out" / "contexts"))
    assert (check.hops, check.in_span, check.in_shard) == (3, 2, 2)
    assert check.missing == ((sample.context_id, 0),)


def _fields(sample: Sample) -> dict[str, Any]:
    return {name: getattr(sample, name) for name in Sample.__dataclass_fields__}


@needs_official
def test_official_records_keep_all_their_gold(tmp_path: Path) -> None:
    manifest, _ = build_musique(OFFICIAL, tmp_path / "out", n_validation=20)
    samples = [
        sample
        for split in ("train", "validation")
        for sample in load_rows(tmp_path / "out" / f"{split}.parquet")
    ]
    assert len(samples) == 100 and manifest["counts"]["set aside"] == {"records": 0}
    check = check_evidence(samples, ContextStore(tmp_path / "out" / "contexts"))
    assert (check.hops, check.in_span, check.missing) == (237, 237, ())
    raw = {f"musique-{r['id']}": r for r in json.loads(OFFICIAL.read_text(encoding="utf-8"))}
    store = ContextStore(tmp_path / "out" / "contexts")
    for sample in samples:
        text = store.get(sample.context_id).text()
        for paragraph in raw[sample.context_id]["paragraphs"]:
            assert f"{paragraph['title']}\n{paragraph['paragraph_text']}" in text
        assert not any(hop.question.count("#") for hop in sample.hops)
