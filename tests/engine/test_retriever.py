import asyncio
import threading
from pathlib import Path

import numpy as np
import pytest

from disco_rl.core.shards import TextContext
from disco_rl.engine.workers import build_worker
from disco_rl.engine.workers.lexical import name_terms, terms
from disco_rl.engine.workers.passages import PassageRule, split
from disco_rl.engine.workers.retriever import Retriever, RetrieverConfig
from tests.fakes import count_words

FILL = "The mill of Dunwick stood by the river. It rained for most of the spring. "
TEXT = (
    "Varo Kelin\nVaro Kelin was a painter. The birthplace of Varo Kelin is Oslo. "
    + FILL * 3
    + "\n\nVaro Kelan\nVaro Kelan wrote letters. The birthplace of Varo Kelan is Rome. "
    + FILL * 3
    + "\n\nThe Silent Lamp\nThe author of The Silent Lamp is Varo Kelin. "
    + FILL * 3
)
BORN = "Find the birthplace of Varo Kelin."


def context(text: str = TEXT, size: int = 30, name: str = "doc") -> TextContext:
    return TextContext.cut(name, text, count_words, size)


def retriever(folder: Path, **changes: object) -> Retriever:
    worker = build_worker({"kind": "retriever", "cache_dir": str(folder), **changes})
    assert isinstance(worker, Retriever)
    return worker


def found(worker: Retriever, instruction: str, doc: TextContext) -> list[tuple[int, str]]:
    scans = [worker.search(instruction, doc, shard.index) for shard in doc.shards]
    return [(i, quote.text) for i, scan in enumerate(scans) for quote in scan.quotes]


def test_an_atomic_lookup_finds_its_sentence_and_not_the_near_duplicates(tmp_path: Path) -> None:
    worker = retriever(tmp_path)
    assert found(worker, BORN, context()) == [(0, "The birthplace of Varo Kelin is Oslo.")]
    other = found(worker, "Find the birthplace of Varo Kelan.", context())
    assert [text for _, text in other] == ["The birthplace of Varo Kelan is Rome."]


def test_a_quote_stands_in_its_shard_at_its_span(tmp_path: Path) -> None:
    worker, doc = retriever(tmp_path, threshold=0.0, relative=0.0, top_k=100), context()
    assert len(doc.shards) > 3
    seen = 0
    for shard in doc.shards:
        for quote in worker.search(BORN, doc, shard.index).quotes:
            assert quote.span is not None and quote.score is not None
            assert doc.read(shard.index)[slice(*quote.span)] == quote.text == quote.text.strip()
            assert 0.0 <= quote.score <= 1.0
            seen += 1
    assert seen > 10


def test_an_absent_fact_finds_nothing(tmp_path: Path) -> None:
    worker = retriever(tmp_path)
    for instruction in ("Find the birthplace of Zuri Tanner.", "Who is he?", "", "?!"):
        assert found(worker, instruction, context()) == []


def test_a_whole_question_finds_no_answer(tmp_path: Path) -> None:
    """What the paper says of an untrained Driver: forwarded questions match nothing well."""
    asked = "In which country is the town where the author of The Silent Lamp was born?"
    texts = [text for _, text in found(retriever(tmp_path), asked, context())]
    assert "The birthplace of Varo Kelin is Oslo." not in texts


def test_the_best_passages_come_first_and_no_more_than_top_k(tmp_path: Path) -> None:
    text = "Ada met Bo in Rome. Ada met Bo. Ada met Bo once more in Rome. Cy slept."
    doc = context(text, size=100)
    many = retriever(tmp_path, threshold=0.0, relative=0.0, top_k=10)
    scores = [quote.score for quote in many.search("Where did Ada meet Bo in Rome?", doc, 0).quotes]
    assert scores == sorted(scores, key=lambda score: -(score or 0)) and len(scores) == 4
    few = retriever(tmp_path, threshold=0.0, relative=0.0, top_k=1)
    assert [q.text for q in few.search("Ada in Rome", doc, 0).quotes] == ["Ada met Bo in Rome."]


def test_a_fact_under_a_heading_that_names_its_subject_is_found(tmp_path: Path) -> None:
    text = "Varo Kelin\n" + FILL + "He was born in Oslo. " + FILL + "\n\nBo Tan\n" + FILL * 2
    doc = context(text, size=20)  # the heading and the fact stand in different shards
    asked = "Where was Varo Kelin born?"
    with_headings = [text for _, text in found(retriever(tmp_path), asked, doc)]
    without = [text for _, text in found(retriever(tmp_path, headings=False), asked, doc)]
    assert "He was born in Oslo." in with_headings and "He was born in Oslo." not in without


@pytest.mark.parametrize("words", [5, 40])
def test_chunks_of_words_cover_the_shard(tmp_path: Path, words: int) -> None:
    text = TEXT + "end"
    passages, _ = split(text, PassageRule(words))
    pieces = [text[p.start : p.end] for p in passages]
    assert " ".join(" ".join(pieces).split()) == " ".join(text.split())
    assert {len(piece.split()) for piece in pieces[:-1]} == {words}
    assert len(pieces[-1].split()) <= words
    worker = retriever(tmp_path, passage_words=words)
    assert any("Varo Kelin is" in quote for _, quote in found(worker, BORN, context()))


def test_no_letter_of_a_shard_is_left_out() -> None:
    passages, heading = split(TEXT, PassageRule())
    quoted = {i for p in passages for i in range(p.start, p.end)}
    headings = {p.heading for p in passages}
    assert headings == {"Varo Kelin", "Varo Kelan", "The Silent Lamp"} and heading in headings
    left = "".join(char for i, char in enumerate(TEXT) if i not in quoted)
    assert " ".join(left.split()) == "Varo Kelin Varo Kelan The Silent Lamp"


@pytest.mark.parametrize("text", ["\n\n", "...", "a", "Heading only\n", "\ud800 odd", "é" * 50])
def test_any_text_can_be_scanned(tmp_path: Path, text: str) -> None:
    doc = context(text, size=10)
    worker = retriever(tmp_path)
    for _ in range(2):
        for shard in doc.shards:
            worker.search("Find é or a heading", doc, shard.index)
    assert retriever(tmp_path).search("x", doc, 0).quotes == ()


def test_terms_are_stemmed_content_words() -> None:
    assert terms("Find the founders of Varo Kelin's guild!") == [
        "founder",
        "varo",
        "kelin",
        "guild",
    ]
    assert terms("日本語 text") == ["日", "本", "語", "text"]
    assert name_terms("When did Varo Kelin move in 1903?") == {"varo", "kelin", "1903"}


def test_an_index_is_built_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = found(retriever(tmp_path), BORN, context())
    from disco_rl.engine.workers import context_index

    def fail(*args: object) -> None:
        raise AssertionError("built again")

    monkeypatch.setattr(context_index, "_build", fail)
    assert found(retriever(tmp_path), BORN, context()) == first
    with pytest.raises(AssertionError, match="built again"):
        found(retriever(tmp_path), BORN, context(TEXT + " More."))
    with pytest.raises(AssertionError, match="built again"):
        found(retriever(tmp_path, headings=False), BORN, context())


def test_a_damaged_index_is_built_again(tmp_path: Path) -> None:
    first = found(retriever(tmp_path), BORN, context())
    (folder,) = [path for path in tmp_path.glob("*/*") if path.is_dir()]
    for file in folder.iterdir():
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    assert found(retriever(tmp_path), BORN, context()) == first
    assert found(retriever(tmp_path), BORN, context()) == first


def test_another_text_under_the_same_id_is_not_mistaken(tmp_path: Path) -> None:
    worker = retriever(tmp_path)
    one, two = context("Ada lives in Rome. It rained."), context("It rained. Ada lives in Oslo.")
    for _ in range(3):
        assert found(worker, "Where does Ada live?", one) == [(0, "Ada lives in Rome.")]
        assert found(worker, "Where does Ada live?", two) == [(0, "Ada lives in Oslo.")]


def test_a_cache_folder_that_refuses_costs_no_result(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    worker = retriever(blocked / "cache")
    assert found(worker, BORN, context()) == [(0, "The birthplace of Varo Kelin is Oslo.")]
    found(worker, BORN, context(TEXT + "x"))
    assert len(caplog.records) == 1 and "set cache_dir" in caplog.text


async def test_many_tasks_at_once(tmp_path: Path) -> None:
    worker = retriever(tmp_path)
    docs = [context(f"{TEXT} Page {i}.", name=f"doc{i}") for i in range(5)]
    scans = await asyncio.gather(
        *(worker.scan(BORN, doc, shard.index) for doc in docs for shard in doc.shards)
    )
    assert [quote.text for scan in scans for quote in scan.quotes] == [
        "The birthplace of Varo Kelin is Oslo."
    ] * 5


def test_many_threads_and_workers_on_one_folder(tmp_path: Path) -> None:
    results: list[list[tuple[int, str]]] = []
    docs = [context(f"{TEXT} Page {i}.", name=f"doc{i}") for i in range(4)]

    def work() -> None:
        worker = retriever(tmp_path)
        results.extend(found(worker, BORN, doc) for doc in docs)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[(0, "The birthplace of Varo Kelin is Oslo.")]] * 32
    assert len([p for p in tmp_path.glob("*/*") if p.is_dir()]) == 4
    assert not list(tmp_path.glob("*/.*"))  # no scratch folder is left


def test_memory_is_bounded(tmp_path: Path) -> None:
    worker = retriever(tmp_path, max_passages=60)
    for i in range(10):
        found(worker, BORN, context(f"{TEXT} Page {i}.", name=f"doc{i}"))
    assert 1 <= len(worker._indexes) <= 2


class Letters:
    """An encoder whose vectors count letters: "similar" texts have similar letters."""

    name = "letters"

    def __init__(self) -> None:
        self.texts: list[str] = []

    def encode(self, texts: list[str]) -> np.ndarray:
        self.texts += texts
        counts = [[t.lower().count(chr(97 + i)) for i in range(26)] for t in texts]
        rows = np.array(counts, np.float32)
        return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-6)


@pytest.mark.parametrize("ranker", ["dense", "fusion"])
async def test_dense_rankers_embed_a_passage_once(tmp_path: Path, ranker: str) -> None:
    config = RetrieverConfig(ranker, threshold=0.0, cache_dir=str(tmp_path))
    encoder = Letters()
    worker = Retriever(config, encoder=encoder)  # type: ignore[arg-type]
    doc = context("Heading only\n" + TEXT)
    asked = "birthplace Varo Kelin Oslo"
    quotes = [await worker.scan(asked, doc, shard.index) for shard in doc.shards]
    assert quotes[0].quotes[0].text == "The birthplace of Varo Kelin is Oslo."
    n_texts = len(encoder.texts)
    again = Retriever(config, encoder=encoder)  # type: ignore[arg-type]
    assert [await again.scan(asked, doc, shard.index) for shard in doc.shards] == quotes
    assert encoder.texts[n_texts:] == [asked]  # only the request, the passages were kept
