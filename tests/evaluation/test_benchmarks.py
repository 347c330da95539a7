"""Loaders on small files of each official shape; RULER-QA lengths exact, and always an end."""

import json
from pathlib import Path

import pytest

from disco_rl.evaluation.benchmarks import load_benchmark
from disco_rl.evaluation.benchmarks.ruler_qa import REPLY_TOKENS
from disco_rl.evaluation.tokens import WordTokenizer, chunks, count, cut_middle, head

WORDS = WordTokenizer()
SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"
SQUAD = SHARED / "squad" / "haystack_small.json"


def write(path: Path, rows: list[dict]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def paragraph(text: str, question: str, answer: str, impossible: bool = False) -> dict:
    qa = {"question": question, "answers": [{"text": answer}], "is_impossible": impossible}
    return {"context": text, "qas": [qa]}


def squad(path: Path) -> str:
    one = [paragraph(f"Town {i} has {i} bells.", f"Bells of town {i}?", str(i)) for i in range(6)]
    two = [paragraph("Nothing is known.", "What is known?", "x", impossible=True)]
    path.write_text(json.dumps({"data": [{"paragraphs": one}, {"paragraphs": two}]}))
    return str(path)


@pytest.mark.parametrize("length", [60, 100, 500, 5000])
def test_ruler_lengths_are_exact_and_the_evidence_stands_once(tmp_path: Path, length: int) -> None:
    config = {"kind": "ruler_qa", "source": squad(tmp_path / "s.json"), "lengths": [length], "n": 9}
    items = load_benchmark(config, WORDS)
    assert len(items) == 6  # as many as there are answerable questions
    for item in items:
        text = item.document.load()
        asked = count(WORDS, f"{text}\n\n{item.task.question}")
        assert asked + REPLY_TOKENS == length
        assert text.count(f"has {item.gold.answers[0]} bells") == 1
        assert item.document.load() == text  # made anew, and the same
        assert "\nAnswer" not in text and text.startswith("Document 1:\n")


def test_ruler_asks_the_same_questions_at_every_length(tmp_path: Path) -> None:
    config = {
        "kind": "ruler_qa", "source": squad(tmp_path / "s.json"), "lengths": [60, 200], "n": 3
    }  # fmt: skip
    items = load_benchmark(config, WORDS)
    assert [i.task.question for i in items[:3]] == [i.task.question for i in items[3:]]
    assert [item.group for item in items] == ["qa_1 60"] * 3 + ["qa_1 200"] * 3
    assert all(item.id.startswith("ruler-qa_1-") for item in items)
    fewer = load_benchmark(config | {"n": 2, "lengths": [60]}, WORDS)
    by_id = {item.id: item.task.question for item in items}
    assert all(by_id.get(i.id, i.task.question) == i.task.question for i in fewer)


def test_ruler_refuses_a_length_under_its_own_documents(tmp_path: Path) -> None:
    config = {"kind": "ruler_qa", "source": squad(tmp_path / "s.json"), "lengths": [40]}
    with pytest.raises(ValueError, match="greater length"):
        load_benchmark(config, WORDS)[0].document.load()


def hotpot(i: int) -> dict:
    """A row as the official file has it."""
    bell = [f"Bell {i} was rung ", f"by Ada {i}."]
    context = [[f"Bell {i}", bell], ["Town", ["Old."]]]
    return {"question": f"Who rang bell {i}?", "answer": f"Ada {i}", "context": context}


def on_the_hub(row: dict) -> dict:
    titles, sentences = zip(*row["context"], strict=True)
    return {**row, "context": {"title": list(titles), "sentences": list(sentences)}}


def test_ruler_reads_hotpotqa(tmp_path: Path) -> None:
    found = {}
    for name, table in (
        ("file", [hotpot(i) for i in range(5)]),
        ("hub", [on_the_hub(hotpot(i)) for i in range(5)]),
    ):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(table))
        config = {"kind": "ruler_qa", "source": str(path), "lengths": [100], "n": 2}
        items = load_benchmark(config, WORDS)
        for item in items:
            text = item.document.load()
            assert f"was rung by {item.gold.answers[0]}." in text
            assert count(WORDS, f"{text}\n\n{item.task.question}") + REPLY_TOKENS == 100
        found[name] = [(i.id, i.group, i.gold, i.document.load()) for i in items]
    assert found["file"] == found["hub"] and found["file"][0][1] == "qa_2 100"


def test_ruler_reads_squad_as_on_the_hub_as_well_as_its_file(tmp_path: Path) -> None:
    source = squad(tmp_path / "s.json")
    rows = [
        {
            "title": "A" if len(article["paragraphs"]) > 1 else "B", "context": p["context"],
            "question": qa["question"],
            "answers": {"text": [a["text"] for a in qa["answers"]] * (not qa["is_impossible"])},
        }
        for article in json.loads(Path(source).read_text())["data"]
        for p in article["paragraphs"]
        for qa in p["qas"]
    ]  # fmt: skip
    texts = []
    for given in (source, write(tmp_path / "rows.jsonl", rows)):
        config = {"kind": "ruler_qa", "source": given, "lengths": [100], "n": 9}
        texts.append([(i.id, i.document.load()) for i in load_benchmark(config, WORDS)])
    assert texts[0] == texts[1] and len(texts[0]) == 6


@pytest.mark.skipif(not SQUAD.is_file(), reason="no ../shared/data")
def test_ruler_on_squad_itself_at_64k() -> None:
    config = {"kind": "ruler_qa", "source": str(SQUAD), "lengths": [64_000], "n": 2}
    for item in load_benchmark(config, WORDS):
        text = item.document.load()
        assert count(WORDS, f"{text}\n\n{item.task.question}") + REPLY_TOKENS == 64_000
        assert any(answer in text for answer in item.gold.answers)


def test_longbench_v2_keeps_the_lengths_asked_for(tmp_path: Path) -> None:
    row = {
        "_id": "a", "length": "long", "question": "Which?", "answer": "B", "context": "text",
        "choice_A": "one", "choice_B": "two", "choice_C": "three", "choice_D": "four",
    }  # fmt: skip
    source = write(tmp_path / "l.jsonl", [row, {**row, "_id": "b", "length": "short"}])
    [item] = load_benchmark({"kind": "longbench_v2", "source": source}, WORDS)
    assert (item.id, item.group, item.gold.answers) == ("a", "long", ("B",))
    assert item.task.asked == "Which?\n(A) one\n(B) two\n(C) three\n(D) four"
    assert item.document.load() == "text" and item.task.max_tokens == 128


def test_infinitebench_finds_the_letter_of_the_answers_text(tmp_path: Path) -> None:
    row = {"id": 3, "context": "book", "input": "Who?", "options": ["Ada", "Bob", "Cy", "Di"]}
    for answer in (["Cy"], ["Cy", "C"], "Cy"):
        source = write(tmp_path / "m.jsonl", [{**row, "answer": answer}])
        [item] = load_benchmark({"kind": "infinitebench", "task": "mc", "source": source}, WORDS)
        assert (item.gold.answers, item.group) == (("C",), "En.MC")
    source = write(tmp_path / "m.jsonl", [{**row, "answer": ["Eve"]}])
    with pytest.raises(ValueError, match="none of the options"):
        load_benchmark({"kind": "infinitebench", "task": "mc", "source": source}, WORDS)
    source = write(tmp_path / "q.jsonl", [{**row, "answer": ["Ada", "Ada L."]}])
    [item] = load_benchmark({"kind": "infinitebench", "task": "qa", "source": source}, WORDS)
    assert item.gold.answers == ("Ada", "Ada L.") and item.task.options == ()


@pytest.mark.skipif(not SHARED.is_dir(), reason="no ../shared/data")
def test_musique_records_become_items() -> None:
    source = str(SHARED / "musique" / "hipporag_musique_train.json")
    items = load_benchmark({"kind": "musique", "source": source}, WORDS)
    assert len(items) == 100 and {item.group for item in items} <= {"2 hops", "3 hops", "4 hops"}
    assert all(item.task.question and item.document.load() for item in items)


def test_bad_benchmarks_say_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="choose from"):
        load_benchmark({"kind": "bleu"}, WORDS)
    with pytest.raises(ValueError, match="no such file"):
        load_benchmark({"kind": "musique", "source": "none.jsonl"}, WORDS)
    with pytest.raises(ValueError, match="unexpected keyword"):
        load_benchmark({"kind": "musique", "source": "x.json", "lengths": [1]}, WORDS)
    source = write(tmp_path / "x.jsonl", [{"question": "q"}])
    with pytest.raises(ValueError, match="no field 'length'"):
        load_benchmark({"kind": "longbench_v2", "source": source}, WORDS)
    (tmp_path / "bad.jsonl").write_text("{\n")
    with pytest.raises(ValueError, match="line 1"):
        load_benchmark({"kind": "musique", "source": str(tmp_path / "bad.jsonl")}, WORDS)
    empty = write(tmp_path / "e.jsonl", [])
    with pytest.raises(ValueError, match="no items"):
        load_benchmark({"kind": "musique", "source": empty}, WORDS)
    row = {
        "id": "a",
        "question": "q",
        "answer": "x",
        "paragraphs": [],
        "question_decomposition": [],
    }
    twice = write(tmp_path / "t.jsonl", [row, row])
    with pytest.raises(ValueError, match="stands twice"):
        load_benchmark({"kind": "musique", "source": twice}, WORDS)


def test_texts_are_cut_on_tokens() -> None:
    assert head(WORDS, "one two three", 2) == "one two" and head(WORDS, "one", 2) == "one"
    assert head(WORDS, "one", 0) == ""
    assert cut_middle(WORDS, "a b c d e f", 4) == ("a b e f", 2)
    assert cut_middle(WORDS, "a b", 2) == ("a b", 0)
    assert chunks(WORDS, " a b c", 2) == [" a b ", "c"] and chunks(WORDS, "", 2) == [""]
